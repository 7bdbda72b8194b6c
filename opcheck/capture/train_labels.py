"""What a model computes its own loss from: labels, by the kind of task that its class is named after."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from opcheck.capture.build import values
from opcheck.capture.inputs import Inputs, describe

if TYPE_CHECKING:
    from opcheck.capture.load import Loaded

#: Objects in a picture, letters in a second of speech: some, and not one alone.
_OBJECTS, _LETTERS = 3, 8

Given = dict[str, Any]


def with_labels(loaded: Loaded, inputs: Inputs) -> Inputs:
    """The inputs and, where the model computes a loss of its own from labels, these.

    A model whose kind is not known here gets none: its loss is made from what it returns (train_loss.py).
    """
    model = loaded.model
    if not isinstance(model, nn.Module):
        return inputs
    known = inspect.signature(model.forward).parameters
    try:
        given = inspect.signature(model.forward).bind_partial(*inputs.args, **inputs.kwargs)
    except TypeError:
        return inputs  # the model says so itself, once it is called
    make = _maker(model, loaded.family)
    made = make(model, given.arguments) if make else {}
    added = {name: value for name, value in made.items() if name in known}
    if not added or any(given.arguments.get(name) is not None for name in added):
        return inputs
    return dataclasses.replace(
        inputs,
        kwargs={**inputs.kwargs, **added},
        specs=(*inputs.specs, *describe((), added)),
        note="; ".join(filter(None, (inputs.note, f"{', '.join(added)} made for the loss"))),
    )


def _maker(model: nn.Module, family: str) -> Callable[[Any, Given], Given] | None:
    if family == "torchvision" and ".detection" in type(model).__module__:
        return _targets
    if family != "transformers":
        return None
    names = [base.__name__ for base in type(model).__mro__]
    return next((make for end, make in TASKS.items() if any(n.endswith(end) for n in names)), None)


# -- transformers: one a task, as its models are named (modeling_utils.py, ``loss_type``) -----------------------


def _tokens(_model: Any, given: Given) -> Given:
    ids = given.get("decoder_input_ids", given.get("input_ids"))
    return {} if ids is None else {"labels": ids.clone()}


def _pretraining(model: Any, given: Given) -> Given:
    made = _tokens(model, given)
    batch = len(made.get("labels", ()))
    return {**made, "next_sentence_label": torch.zeros(batch, dtype=torch.int64)} if made else {}


def _one_class(_model: Any, given: Given) -> Given:
    return {"labels": torch.zeros(_batch(given), dtype=torch.int64)}


def _class_of_tokens(model: Any, given: Given) -> Given:
    ids = given.get("input_ids")
    if ids is None:
        return {}
    return {"labels": values(tuple(ids.shape), torch.int64, model.config.num_labels)}


def _span(_model: Any, given: Given) -> Given:
    start = torch.ones(_batch(given), dtype=torch.int64)
    return {"start_positions": start, "end_positions": start + 1}


def _letters(model: Any, given: Given) -> Given:
    size = (_batch(given), _LETTERS)
    # Blank and padding are at the front.
    return {"labels": values(size, torch.int64, model.config.vocab_size // 2) + 5}


def _objects(model: Any, given: Given) -> Given:
    boxes = torch.tensor([[0.25, 0.25, 0.2, 0.2], [0.5, 0.5, 0.3, 0.4], [0.7, 0.6, 0.2, 0.5]])
    classes = torch.arange(_OBJECTS).remainder(model.config.num_labels)
    return {"labels": [{"class_labels": classes, "boxes": boxes} for _ in range(_batch(given))]}


def _classes_of_pixels(model: Any, given: Given) -> Given:
    image = given.get("pixel_values")
    if image is None:
        return {}
    size = (image.shape[0], *image.shape[-2:])
    return {"labels": values(size, torch.int64, model.config.num_labels)}


#: End of a class's name -> its labels.
TASKS: dict[str, Callable[[Any, Given], Given]] = {
    "ForCausalLM": _tokens,
    "LMHeadModel": _tokens,
    "ForConditionalGeneration": _tokens,
    "ForMaskedLM": _tokens,
    "ForPreTraining": _pretraining,
    "ForSequenceClassification": _one_class,
    "ForImageClassification": _one_class,
    "ForVideoClassification": _one_class,
    "ForAudioClassification": _one_class,
    "ForMultipleChoice": _one_class,
    "ForNextSentencePrediction": _one_class,
    "ForTokenClassification": _class_of_tokens,
    "ForQuestionAnswering": _span,
    "ForCTC": _letters,
    "ForObjectDetection": _objects,
    "ForSemanticSegmentation": _classes_of_pixels,
}


def _batch(given: Given) -> int:
    first = next((value for value in given.values() if isinstance(value, torch.Tensor)), None)
    return 1 if first is None else first.shape[0]


# -- torchvision's detection ------------------------------------------------------------------------------------


def _targets(_model: Any, given: Given) -> Given:
    (images, *_) = given.values()
    return {"targets": [_target(image) for image in images]}


def _target(image: torch.Tensor) -> Given:
    height, width = image.shape[-2:]
    corners = torch.tensor([[0.1, 0.1, 0.4, 0.5], [0.3, 0.2, 0.9, 0.8], [0.5, 0.5, 0.7, 0.9]])
    points = torch.tensor([[0.2, 0.3, 1.0]]).repeat(_OBJECTS, 17, 1)
    return {
        "boxes": corners * torch.tensor([width, height, width, height]),
        "labels": torch.ones(_OBJECTS, dtype=torch.int64),
        "masks": torch.ones(_OBJECTS, height, width, dtype=torch.uint8),
        "keypoints": points * torch.tensor([width, height, 1.0]),
    }
