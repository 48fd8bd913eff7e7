"""Where the candidates of a run are tried. In: an address and labels as the user gives them. Out: options, a runner.

Nothing is connected to here: that a cluster cannot be reached is said when the run opens its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from compilot.errors import InputError

if TYPE_CHECKING:
    from compilot.tuning.options import TuneOptions
    from compilot.tuning.pipeline import MakeRunner


def on_cluster(
    options: TuneOptions, on: str | None, nodes: Mapping[str, str] | None, exchange: str | None
) -> TuneOptions:
    """The options with what is given of the cluster; a resumed run has that of before."""
    if on is not None:
        if not on.strip():
            raise InputError("name a cluster: ray, auto, HOST:PORT or ray://HOST:PORT.")
        options = options._replace(on=on.strip())
    if nodes is not None:
        options = options._replace(nodes=dict(nodes))
    if exchange is not None:
        options = options._replace(exchange=exchange)
    if (options.nodes or options.exchange) and not options.on:
        raise InputError("labels of nodes and an exchange are for a cluster; name it with on.")
    if options.on and options.trace is not None:  # before a cluster is asked for anything
        from compilot.trials.runner import one_machine

        raise one_machine()
    return options


def runner_for(options: TuneOptions) -> MakeRunner | None:
    """What makes the run's runner; None: this machine's."""
    if not options.on:
        return None
    from compilot.cluster.runner import runner_on  # here: most runs have no cluster

    return runner_on(options.on, options.nodes, options.exchange or None)


def labels_from(texts: list[str] | None) -> dict[str, str] | None:
    """LABEL=VALUE, as often as it is given."""
    if not texts:
        return None
    found = dict(text.partition("=")[::2] for text in texts)
    if bad := [text for text in texts if "=" not in text or text.startswith("=")]:
        raise InputError(f"'{bad[0]}' is no label of a node; write LABEL=VALUE.")
    return found
