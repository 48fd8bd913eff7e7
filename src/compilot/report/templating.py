"""The settings of every page that is drawn from a template.

In: the package whose `templates` folder has the files. Out: jinja2's environment: values are escaped, and a name that
a page does not know is an error. Filters are added by whoever draws.
"""

from __future__ import annotations

import jinja2


def environment_of(package: str) -> jinja2.Environment:
    """For the templates of a package, named with dots."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
