"""Failed comparisons in the shared contract are shown in full."""

import pytest

pytest.register_assert_rewrite("failing", "hostile", "neighbours")
