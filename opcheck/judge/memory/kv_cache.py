"""Compute the memory of the key and value cache by the length of the context, for each cache of transformers."""

from collections.abc import Iterator

from opcheck.model.records import CacheShape, MemoryCache

_CONTEXTS = tuple(1024 << power for power in range(0, 11, 2))
#: transformers, QuantizedCache by default: 4 bits, a scale and a zero point in half precision for 64 numbers, and
#: the last 128 tokens as they are.
_BITS, _GROUP, _RESIDUAL = 4, 64, 128


def caches(shape: CacheShape | None) -> Iterator[MemoryCache]:
    """Yield the bytes of each kind of cache for usual contexts, up to the longest that the model takes."""
    if shape is None:
        return
    contexts = [each for each in _CONTEXTS if not shape.longest or each <= shape.longest]
    for context in contexts or [shape.longest]:
        yield cache(shape, context)


def cache(shape: CacheShape, context: int) -> MemoryCache:
    """Return the bytes of each kind of cache for one context."""
    token = 2 * shape.heads * shape.size * shape.itemsize
    full = shape.layers - shape.sliding
    kept = min(context, shape.window) if shape.window else context
    exact = min(context, _RESIDUAL)
    quantized = 2 * shape.heads * shape.size * (_BITS / 8 + 4 / _GROUP)
    dynamic = token * (full * context + shape.sliding * kept)
    return MemoryCache(
        context=context,
        dynamic=dynamic,
        # DynamicLayer.update concatenates: one layer's tensor exists twice for a moment.
        growing=dynamic + token // 2 * (context if full else kept),
        static=dynamic,
        full=token * shape.layers * context,
        quantized=int(shape.layers * (quantized * (context - exact) + token * exact)),
    )
