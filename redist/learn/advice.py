"""What errors of global arrays advise in scikit-learn; listed in :data:`redist.text.extras.ADVISERS`."""

from __future__ import annotations

import sys
from types import FrameType

PICKLES = "of a fitted scikit-learn model pickle redist.learn.gathered(model)"
"""What to pickle where a model has a global array."""


def explain_conversion(frame: FrameType | None, size: str) -> str:
    """What to do if scikit-learn, in or above ``frame``, takes a global array of ``size`` for NumPy's."""
    from redist.learn import metrics

    called = user = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] == "sklearn":
            own = frame.f_locals.get("self")
            user = user if own is None else type(own).__name__
            called = frame.f_code.co_name if module.startswith("sklearn.metrics") else called
        frame = frame.f_back
    if called in metrics.__all__:
        return f": write redist.learn.metrics.{called}, which takes global arrays"
    if sys.modules["sklearn"].get_config().get("array_api_dispatch"):
        return (
            f": {f'{user} of scikit-learn' if user else 'this part of scikit-learn'} works on NumPy alone, "
            "also with array_api_dispatch=True; redist.learn.cluster, redist.learn.metrics and pgas's "
            f"functions take global arrays, or write a.gather() for all of it ({size})"
        )
    return (
        ": scikit-learn takes global arrays where it can under "
        "sklearn.config_context(array_api_dispatch=True), and redist.learn.cluster and "
        "redist.learn.metrics always accept them; or write a.gather() for all of it "
        f"({size})"
    )
