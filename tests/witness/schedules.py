"""Pipeline schedules from their published rules, and what follows from an order of cells.

A cell is (kind, stage, micro-batch): F forward, B whole backward, I gradients of inputs, W
gradients of weights.  Letters: p pipeline ranks, m micro-batches, v chunks of a rank.  Stage s is
on rank s mod p; in a V form the way back is on the same ranks from the last to the first.

GPipe: Huang et al. 2018; 1F1B and interleaved 1F1B: Narayanan et al. 2021, section 2.2; ZB-H1 and
ZB-V: Qi et al. 2023, sections 2 and 6."""
import re
from functools import lru_cache
from itertools import zip_longest

TIME = {"F": 1, "B": 2, "I": 1, "W": 1}


def in_turn(forwards, backwards, warm):
    """`warm` forwards, then a forward and a backward in turn, then what is left."""
    turns = zip_longest(forwards[warm:], backwards)
    return forwards[:warm] + [cell for turn in turns for cell in turn if cell]


def through_chunks(kind, p, m, v, group, rank):
    """Groups of micro-batches through a rank's chunks one after the other, back from the last."""
    chunks = list(range(v)) if kind == "F" else list(range(v))[::-1]
    return [(kind, chunk * p + rank, j) for begin in range(0, m, group) for chunk in chunks
            for j in range(begin, min(begin + group, m))]


def gpipe(p, m, rank):
    return [(kind, rank, j) for kind in "FB" for j in range(m)]


def one_f_one_b(p, m, rank, v=1, group=0):
    """The first backward reaches a rank when the p - 1 - rank ranks behind it have had the
    micro-batch; of chunks, both ways, and all chunks but the last have had the whole group."""
    group = (group or p) if v > 1 else m
    behind = p - 1 - rank
    warm = behind if v == 1 else 2 * behind + (v - 1) * group
    return in_turn(*(through_chunks(kind, p, m, v, group, rank) for kind in "FB"), warm)


def zb_h1(p, m, rank):
    """1F1B with split backwards; W comes `rank` micro-batches late, and where the last I is done
    what is left."""
    out, late = [], list(range(m))
    for kind, stage, j in one_f_one_b(p, m, rank):
        out.append((kind if kind == "F" else "I", stage, j))
        if kind == "B" and rank <= j < m - 1:
            out.append(("W", stage, late.pop(0)))
    return out + [("W", rank, j) for j in late]


def numbered(letters, p, m, rank):
    """From letters to cells: F I W of the chunk on the way down, f i w of that on the way back,
    each kind counted by itself; from m on there is no such micro-batch."""
    count, out = dict.fromkeys("FIWfiw", 0), []
    for letter in letters:
        stage = rank if letter.isupper() else 2 * p - 1 - rank
        if count[letter] < m:
            out.append((letter.upper(), stage, count[letter]))
        count[letter] += 1
    return out


def zb_v(p, m, rank):
    """Of at least 2p - 1 micro-batches; of fewer, the same without those that do not exist."""
    turns = max(m, 2 * p - 1)
    fill = "F" * (2 * (p - rank) - 1) + "fF" * rank + "fiw" * (p - rank)
    steady = "FIWfiw" * (turns - p)
    drain = "Ii" * rank + "IW" * (p - rank) + "w" * turns + "W" * turns
    return numbered(fill + steady + drain, p, m, rank)


def zb_v_of_few(p, m):
    """All micro-batches fit at once: every rank, each unit of time, what comes first of i f I F W
    w and is ready."""
    done = {(kind, s): 0 for kind in "FIW" for s in range(-1, 2 * p + 1)}
    done["F", -1] = m
    table = [[] for _ in range(p)]
    while any(done["W", s] < m for s in range(2 * p)):
        done["I", 2 * p] = done["F", 2 * p - 1]
        before = dict(done)
        for rank in range(p):
            down, back = rank, 2 * p - 1 - rank
            for kind, s in (("I", back), ("F", back), ("I", down), ("F", down), ("W", down),
                            ("W", back)):
                needs = {"F": ("F", s - 1), "I": ("I", s + 1), "W": ("I", s)}[kind]
                if before[kind, s] < before[needs]:
                    table[rank].append((kind, s, before[kind, s]))
                    done[kind, s] += 1
                    break
    return table


def drawn(r, p, m):
    """A table that comes to an end: stages on ranks as it comes, then any cell that is ready, until
    all are done."""
    place = [*range(p), *(r.randrange(p) for _ in range(r.randrange(2 * p + 1)))]
    r.shuffle(place)
    backward = r.choice(["B", "IW", None])  # None: some this way, some that
    ways = {(s, j): backward or r.choice(["B", "IW"]) for s in range(len(place)) for j in range(m)}
    left = [(kind, s, j) for (s, j), way in ways.items() for kind in "F" + way]
    end, table = set(), [[] for _ in range(p)]
    while left:
        cell = r.choice([c for c in left if all(n in end for n in needs_of(c, len(place)))])
        left.remove(cell)
        table[place[cell[1]]].append(cell)
        if cell[0] != "W":
            end.add((cell[1], cell[2], cell[0] != "F"))
    return table


def written(table):
    """As a file has it: cells such as 3B12."""
    return "".join(",".join(f"{s}{kind}{j}" for kind, s, j in cells) + "\n" for cells in table)


@lru_cache(maxsize=None)
def read(path):
    with open(path) as file:
        lines = file.read().split()
    cells = [[re.fullmatch(r"(\d+)([FBIW])(\d+)", cell).groups() for cell in line.split(",")]
             for line in lines]
    return [[(kind, int(s), int(j)) for s, kind, j in line] for line in cells]


def needs_of(cell, stages):
    """What has to have ended before a cell begins: (stage, micro-batch, is it a gradient)."""
    kind, s, j = cell
    if kind == "F":
        return [(s - 1, j, False)] if s > 0 else []
    if kind == "W":
        return [(s, j, True)]
    return [(s, j, False)] + ([(s + 1, j, True)] if s + 1 < stages else [])


class Schedule:
    """The table of a run: `table[rank]`, and on which rank each stage is.  A name that ends in .csv is
    a file."""

    def __init__(self, name, p, m, v=1, group=0):
        if name.endswith(".csv"):
            self.take(read(name))
            return
        if p == 1 and name != "gpipe" or name == "interleaved" and v == 1:
            name = "1f1b"
        self.name, self.p, self.m = name, p, m
        self.v = {"interleaved": v, "zb-v": 2}.get(name, 1)
        self.group, self.stages = group or p, p * self.v
        self.is_split = name.startswith("zb")
        self.place = [self.rank_of(s) for s in range(self.stages)]
        self.table = self.make()

    def rank_of(self, stage):
        is_back = self.name == "zb-v" and stage >= self.p
        return self.stages - 1 - stage if is_back else stage % self.p

    def make(self):
        p, m = self.p, self.m
        if self.name == "zb-v" and m <= p:
            return zb_v_of_few(p, m)
        one = {"gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1, "zb-v": zb_v,
               "interleaved": lambda p, m, rank: one_f_one_b(p, m, rank, self.v, self.group)}
        return [one[self.name](p, m, rank) for rank in range(p)]

    def take(self, table):
        self.table, self.p = table, len(table)
        on = {s: rank for rank, cells in enumerate(table) for _, s, _ in cells}
        self.place, self.stages = [on[s] for s in sorted(on)], len(on)
        self.is_split = any(kind == "I" for cells in table for kind, _, _ in cells)

    def times(self):
        """(begin of each rank's cells, end of each (stage, micro-batch, is it a gradient)), every
        cell as early as can be."""
        begin, end = [[] for _ in range(self.p)], {}
        clock, is_moving = [0] * self.p, True
        while is_moving:
            is_moving = False
            for rank, cells in enumerate(self.table):
                while len(begin[rank]) < len(cells):
                    cell = cells[len(begin[rank])]
                    needs = needs_of(cell, self.stages)
                    if not all(need in end for need in needs):
                        break
                    begin[rank].append(max([clock[rank]] + [end[need] for need in needs]))
                    clock[rank] = begin[rank][-1] + TIME[cell[0]]
                    if cell[0] != "W":
                        end[cell[1], cell[2], cell[0] != "F"] = clock[rank]
                    is_moving = True
        assert all(len(b) == len(cells) for b, cells in zip(begin, self.table)), "it deadlocks"
        return begin, end

    def live(self, rank):
        """Most (stage, micro-batch) pairs between F and B or I, and between I and W."""
        saved = deferred = most_saved = most_deferred = 0
        for kind, _, _ in self.table[rank]:
            saved += {"F": 1, "W": 0}.get(kind, -1)
            deferred += {"I": 1, "W": -1}.get(kind, 0)
            most_saved, most_deferred = max(most_saved, saved), max(most_deferred, deferred)
        return most_saved, most_deferred
