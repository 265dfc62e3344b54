# SPDX-License-Identifier: Apache-2.0
"""torchvision.transforms.v2's MixUp and CutMix, as a loader's batch_transform."""

from __future__ import annotations

from typing import Any

from ._policies import RandomChoice
from ._steps import Transform, _number, _numbers


class _Mix(Transform):
    _field: str

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Any = "default") -> None:
        self.alpha = float(alpha)
        if not self.alpha > 0:
            raise ValueError(f"alpha should be positive, but got alpha={alpha}")
        if labels_getter != "default":
            raise TypeError("labels_getter cannot run in the daemon: the labels are the dataset's")
        self.num_classes = num_classes

    def to_json(self) -> dict[str, Any]:
        """This step as a loaderd.v1.BatchStep in JSON form."""
        if self.num_classes is None:
            raise ValueError("num_classes must be passed if the labels are index-based (1D)")
        return {self._field: {"alpha": _number(self.alpha), "num_classes": int(self.num_classes)}}

    def __call__(self, *_: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} of loaderd.transforms runs in the daemon: give it to a DataLoader as batch_transform="
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha}, num_classes={self.num_classes})"


class MixUp(_Mix):
    """Adds to each sample of a batch the one before it (to the first the last), lam of it and 1 - lam of that, lam from
    Beta(alpha, alpha); the labels become float32 [batch, num_classes]. On float tensors. `loaderd.random.mix_up_lam` tells lam.
    """

    _field = "mix_up"


class CutMix(_Mix):
    """Sets one random box in each sample of a batch to what the sample before it has there; the labels become float32
    [batch, num_classes], in the proportion of the areas. On tensors. `loaderd.random.cut_mix` tells the box.
    """

    _field = "cut_mix"


def batch_step_of(transform: Any) -> dict[str, Any] | None:
    """A batch_transform as a loaderd.v1.BatchStep in JSON form: MixUp, CutMix, or RandomChoice of them.

    TypeError for anything else, naming it and what is supported.
    """
    if transform is None:
        return None
    if isinstance(transform, _Mix):
        return transform.to_json()
    if isinstance(transform, RandomChoice) and all(isinstance(step, _Mix) for step in transform.transforms):
        step: dict[str, Any] = {"transforms": [step.to_json() for step in transform.transforms]}
        if transform.p is not None:
            step["p"] = _numbers(transform.p)
        return {"random_choice": step}
    raise TypeError(
        f"batch_transform {transform!r} ({type(transform).__module__}.{type(transform).__qualname__}) cannot run in the daemon; "
        "supported are MixUp, CutMix and RandomChoice of them, of loaderd.transforms"
    )
