"""What a model is called for: its forward pass, and what its users do with it: generate, pool, find boxes."""

import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

from torch import nn

from opcheck.capture.child.build import values
from opcheck.capture.child.inputs.derive import derive
from opcheck.capture.child.loading import libraries
from opcheck.capture.child.loading.load import Arguments, Loaded
from opcheck.capture.child.recipes.pipelines import PipelineModel, has_latents, latents
from opcheck.capture.child.recipes.recipe_engine import evaluate
from opcheck.capture.word_lists import TABLES
from opcheck.common.documents import DocumentError, brief, from_yaml
from opcheck.common.errors import InputError, UsageError

FORWARD = "forward"
#: ``generate`` by default: the prompt, and two steps with its cache, the next token drawn.
_GENERATE = "generate:max_new_tokens=3"
_SAMPLE = ",do_sample=true"
#: ``NAME=`` at the beginning of an argument.
_ARGUMENT = re.compile(r"(^|,)\s*([A-Za-z_]\w*)=")

#: What the name in a flag is, and examples.
_EXAMPLES: dict[str, list[str]] = TABLES["examples"]

#: The end of a class name -> the method of the image processor that its users call with the outputs.
_AFTER: dict[str, str] = TABLES["after"]


#: The end of a class name -> what its users make of the scores, in words and as an expression.
_SCORES: dict[str, list[str]] = TABLES["scores"]


class OwnInputs(NamedTuple):
    """What a component of a pipeline is called with by itself, on the CPU."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: whether nothing but its configuration states what they are; else the pipeline had prepared them
    guessed: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One thing that a model is called for, in the order of the run."""

    #: as a report names it: ``forward``, ``generate(max_new_tokens=3)``
    name: str
    #: called with the model, the inputs on the device, and what the call before returned
    run: Callable[[nn.Module, Arguments, Any], Any]
    #: whether it takes what the call before returned
    follows: bool = False
    #: where the pipeline's call comes first: the component that is called by itself if that breaks off
    component: str = ""
    #: makes the component's own inputs; raises where nothing is known of them
    inputs: Callable[[], OwnInputs] = lambda: OwnInputs((), {})
    #: a part of the component that has run where the pipeline's call has used it
    proof: nn.Module | None = None


def _forward(model: nn.Module, arguments: Arguments, _before: Any) -> Any:
    args, kwargs = arguments
    return model(*args, **kwargs)


FORWARD_CALL = ModelCall(name=FORWARD, run=_forward)


def parse(text: str, flag: str = "--call") -> tuple[str, dict[str, Any]]:
    """Read ``generate:max_new_tokens=4,do_sample=true`` or ``adam:betas=[0.9, 0.95]``: a name and its arguments.

    Raises:
        UsageError: no name, or an argument that is no NAME=VALUE.
    """
    name, _, rest = text.partition(":")
    hint = "write NAME=VALUE, with commas between them, and values as in YAML"
    if not all(part.isidentifier() for part in name.split(".")):
        what, example = _EXAMPLES[flag]
        raise UsageError(f"not a {what}: {brief(name)}", context=f"{flag} {text}", hint=f"write {example}")
    # YAML distinguishes a comma between two arguments from one within a list.
    mapping = _ARGUMENT.sub(r"\1\2: ", rest)
    try:
        arguments = from_yaml(f"{{{mapping}}}")
    except DocumentError as error:
        raise UsageError(f"not arguments: {brief(rest)}", context=f"{flag} {text}", hint=hint) from error
    for argument in arguments:
        if not (str(argument).isidentifier() and f"{argument}=" in rest):
            raise UsageError(f"not an argument: {brief(str(argument))}", context=f"{flag} {text}", hint=hint)
    return name, arguments


def calls(loaded: Loaded, texts: tuple[str, ...]) -> tuple[ModelCall, ...]:
    """Return what a run calls the model for.

    Args:
        loaded: the model.
        texts: ``--call``, in their order; empty: what its users do, where its library states that, else forward.

    Raises:
        UsageError: a text that does not parse.
        InputError: the model has no such method.
    """
    if texts:
        return tuple(_method(loaded.model, *parse(text)) for text in texts)
    return tuple(_usual(loaded)) if loaded.as_used else (FORWARD_CALL,)


def _usual(loaded: Loaded) -> list[ModelCall]:
    model: Any = loaded.model
    name = type(model).__name__
    # A model of several stages, such as Bark, has generate() alone.
    result = [FORWARD_CALL] if type(model).forward is not nn.Module.forward else []
    for end, (what, score) in _SCORES.items():
        if name.endswith(end):
            result.append(ModelCall(name=what, run=_scores(score), follows=True))
    method = next((method for end, method in _AFTER.items() if name.endswith(end)), "")
    if method and hasattr(loaded.processor, method):
        name_after = f"{method} of the processor"
        result.append(ModelCall(name=name_after, run=_make_post_process(loaded.processor, method), follows=True))
    can_generate = getattr(model, "can_generate", None)
    if can_generate is not None and can_generate():
        of_text = getattr(model, "main_input_name", "") == "input_ids"
        encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        name, arguments = parse(_GENERATE + (_SAMPLE if of_text and not encodes else ""))
        result.append(_method(model, name, {**arguments, **(_start(model) if encodes else {})}))
    return result or [FORWARD_CALL]


def _start(model: Any) -> dict[str, Any]:
    """Return the token that a decoder begins with, where neither the class nor the repository states it."""
    settings = getattr(model, "generation_config", None)
    stated = (getattr(settings, f"{name}_token_id", None) for name in ("decoder_start", "bos"))
    if any(each is not None for each in stated):
        return {}
    padding = getattr(settings, "pad_token_id", None)
    return {"decoder_start_token_id": padding if isinstance(padding, int) else 0}


def _method(model: Any, name: str, supplied: dict[str, Any]) -> ModelCall:
    """Return a call of a method, with those of the model's inputs that it takes and the given arguments."""
    if name == FORWARD and not supplied:
        return FORWARD_CALL
    method = reduce(lambda owner, part: getattr(owner, part, None), name.split("."), model)
    if not callable(method):
        cached = [each for each in dir(type(model)) if not each.startswith("_")]
        own = [each for each in cached if not hasattr(nn.Module, each)]
        raise InputError(
            f"{type(model).__name__} has no method {name!r}",
            context=f"--call {name}",
            hint=f"it has {', '.join(own[:12])}" if own else "leave --call out",
        )
    written = ", ".join(f"{key}={value}" for key, value in supplied.items())

    def run(model: nn.Module, arguments: Arguments, _before: Any) -> Any:
        args, kwargs = arguments
        bound = operator.attrgetter(name)(model)
        return bound(*args, **{**_taken_inputs(bound, kwargs), **supplied})

    return ModelCall(name=f"{name}({written})", run=run)


def _taken_inputs(method: Callable[..., Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that a method takes; what a decoder has written so far is what ``generate`` makes itself."""
    parameters = inspect.signature(method).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return {
        name: value
        for name, value in kwargs.items()
        if name in parameters or (takes_all and not name.startswith(("decoder_", "labels")))
    }


def _scores(expression: str) -> Callable[..., Any]:
    code = compile(expression, "<scores>", "eval")

    def run(_model: nn.Module, _arguments: Arguments, before: Any) -> Any:
        return evaluate(code, {"logits": before.logits if hasattr(before, "logits") else before[0]})

    return run


def _make_post_process(processor: Any, method: str) -> Callable[..., Any]:
    def run(_model: nn.Module, arguments: Arguments, before: Any) -> Any:
        post_process = getattr(processor, method)
        parameters = inspect.signature(post_process).parameters
        pixels = arguments[1].get("pixel_values")
        sizes = [tuple(pixels.shape[-2:])] if pixels is not None else None
        return post_process(before, **({"target_sizes": sizes} if "target_sizes" in parameters else {}))

    return run


# -- the components of a pipeline ------------------------------------------------------------------------------------


#: The end of the names of these calls.
BY_ITSELF = " by itself"


def component_calls(model: nn.Module) -> Iterator[ModelCall]:
    """Yield a call of each component: its decode if it has latents to decode, else its forward.

    Args:
        model: a pipeline; any other model has no components.
    """
    if not isinstance(model, PipelineModel):
        return
    for name, component in model.named_children():
        decodes = hasattr(component, "decode") and has_latents(component)
        yield ModelCall(
            name=f"{name}.decode{BY_ITSELF}" if decodes else f"{name}{BY_ITSELF}",
            run=_component_method(name, "decode" if decodes else FORWARD),
            component=name,
            inputs=partial(_own_latents, model, component) if decodes else partial(_derive_inputs, component),
            proof=getattr(component, "decoder", component) if decodes else component,
        )


def _own_latents(pipeline: PipelineModel, component: nn.Module) -> OwnInputs:
    """Return latents of the shape that the pipeline had come to, if the component decodes such, else of its own."""
    own = latents(component)
    shape = pipeline.latents
    if len(shape) != own.dim() or shape[1] != own.shape[1]:
        return OwnInputs((own,), {})
    return OwnInputs((values(shape, own.dtype),), {}, guessed=False)


def _derive_inputs(component: nn.Module) -> OwnInputs:
    args, kwargs, _ = derive(component, libraries.family(component))
    return OwnInputs(args, kwargs)


def _component_method(component: str, method: str) -> Callable[..., Any]:
    def run(model: nn.Module, arguments: Any, _before: Any) -> Any:
        args, kwargs = arguments
        module: Any = model.get_submodule(component)
        called = module if method == FORWARD else getattr(module, method)
        return called(*args, **kwargs)

    return run
