"""Which units each pipeline stage holds, by search over every way to cut the layers.

A stage costs the FLOPs of its units, of one token: 6 for each weight in a matrix product and,
causal, 6 for each product of attention.  The embedding multiplies nothing but moves rows of H fp32
numbers: of each table one read, one added to its gradient; the sum of them written and read; a
byte counts as 50 FLOPs.  The dearest stage is to be as cheap as can be, and then all as even as
can be."""
from itertools import combinations

FLOPS_PER_BYTE = 50


def layer_cost(s):
    weights = s.H * (s.a + 2 * s.g) * s.d + s.a * s.d * s.H + (2 if s.is_gpt else 3) * s.H * s.F
    return 6 * weights + 6 * s.seq * s.a * s.d


def embedding_cost(s):
    tables = 2 if s.is_gpt else 1
    return (3 * tables + 2) * s.H * 4 * FLOPS_PER_BYTE


def head_cost(s):
    return 6 * s.vocab * s.H


def costs_of(s, counts):
    """Of stages with so many layers."""
    out = [n * layer_cost(s) for n in counts]
    out[0] += embedding_cost(s)
    out[-1] += head_cost(s)
    return out


def balanced(s, n):
    """Every best way to deal out a model's layers to n stages, one at least to each."""
    best, found = None, []
    for cuts in combinations(range(1, s.L), n - 1):
        counts = [b - a for a, b in zip((0, *cuts), (*cuts, s.L))]
        costs = costs_of(s, counts)
        key = (max(costs), sum(c * c for c in costs))
        if best is None or key < best:
            best, found = key, []
        if key == best:
            found.append(counts)
    return found


def units_of(counts):
    """[first, end) of each stage in units: the embedding, layers, the head."""
    first = [0]
    for n in counts[:-1]:
        first.append((first[-1] or 1) + n)
    return list(zip(first, [*first[1:], sum(counts) + 2]))


def layers_of(document):
    """Of every stage, as check says it."""
    head = max(unit for stage in document["stages"] for unit in stage["units"])
    return [sum(0 < unit < head for unit in stage["units"]) for stage in document["stages"]]
