# RUN: np=1 timeout=60 tags=fast
"""The page of a plan as a document: it is well formed, needs nothing beside it, holds the numbers of
`plan --json`, what it says to type means what it says, and names are text whatever is in them."""
import json
import os
import shlex
import subprocess
import sys
import tempfile

from page import ASKED, ECHELON, NOT_FITTING, expect, failures, plan, policy_hash, read

SIZE = 300_000  # bytes of a usual page, at most
GRAPHICS = {"svg", "path", "rect", "line", "circle", "text", "g", "title"}
HOSTILE = "<img src=x onerror=alert(1)>\"'&amp;</title><script>alert(2)<\u202eok"


def near(what, got, want, share=1e-12):
    if not abs(got - want) <= share * abs(want):
        failures.append(f"{what}: got {got!r}, wanted {want!r} within {share}")


# --- every page ---

def check_policy(name, root):
    metas = {m.attrs.get("name") or m.attrs.get("http-equiv"): m.attrs.get("content")
             for m in root.all("meta")}
    rules = dict(r.strip().split(" ", 1) for r in metas["Content-Security-Policy"].split(";"))
    expect(f"{name}: viewport", metas["viewport"], "width=device-width, initial-scale=1")
    expect(f"{name}: policy", {k: rules[k] for k in ("default-src", "base-uri", "form-action")},
           {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"})
    for tag in ("style", "script"):
        nodes = list(root.all(tag))
        expect(f"{name}: one <{tag}>", len(nodes), 1)
        expect(f"{name}: the hash of <{tag}> in src/report/plan_page_style.c",
               rules[f"{tag}-src"], f"'{policy_hash(nodes[0].text())}'")


def check_nothing_outside(name, text, root):
    for word in ("http:", "https:", "//www", "@import", "url(", "data:"):
        expect(f"{name}: holds no {word}", word in text, False)
    for node in root.all():
        if node.tag in ("img", "iframe", "link", "object", "embed", "base", "form", "a", "use"):
            failures.append(f"{name}: there is a <{node.tag}>")
        for attribute in node.attrs:
            if attribute in ("src", "href", "action", "srcset", "poster", "style", "xlink:href") or \
                    attribute.startswith("on"):
                failures.append(f"{name}: <{node.tag} {attribute}=...>")
    script = "".join(n.text() for n in root.all("script"))
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch(",
                 "XMLHttpRequest", "import("):
        expect(f"{name}: script has no {word}", word in script, False)


def check_access(name, root):
    ids = [n.attrs["id"] for n in root.all() if "id" in n.attrs]
    expect(f"{name}: ids once each", len(ids), len(set(ids)))
    expect(f"{name}: one h1", len(list(root.all("h1"))), 1)
    for section in root.all("section"):
        title = section.attrs.get("aria-labelledby")
        expect(f"{name}: a section is named by its title",
               [h.attrs.get("id") for h in section.all("h2")], [title])
    for table in root.all("table"):
        heads = list(table.all("th"))
        expect(f"{name}: heads of table {table.attrs.get('id')}",
               [h.attrs.get("scope") for h in heads if h.attrs.get("scope") not in ("col", "row")],
               [])
        expect(f"{name}: table {table.attrs.get('id')} has heads", len(heads) > 0, True)
    for svg in root.all("svg"):
        spoken = any(n.attrs.get("role") in ("img", "group") and n.attrs.get("aria-label")
                     for n in [svg, *svg.all(), *ancestors(svg)] if n.tag in GRAPHICS)
        expect(f"{name}: a drawing has words", spoken or svg.attrs.get("aria-hidden") == "true",
               True)


def ancestors(node):
    while node.parent:
        node = node.parent
        yield node


def sound(name, text):
    """What holds of every page.  Returns its tree."""
    root, faults = read(text)
    expect(f"{name}: tags", faults, [])
    expect(f"{name}: begins", text.startswith("<!DOCTYPE html>\n"), True)
    expect(f"{name}: language", next(root.all("html")).attrs.get("lang"), "en")
    expect(f"{name}: at most {SIZE} bytes", len(text.encode()) <= SIZE, True)
    check_policy(name, root)
    check_nothing_outside(name, text, root)
    check_access(name, root)
    return root


# --- numbers ---

def check_lists(root, answer):
    best = answer["best"]
    expect("best", [r.values() for r in root.by_id("best").rows()],
           [[c["step_s"], c["step_s"] / best[0]["step_s"] - 1, c["mfu"], c["reserved_bytes"]]
            for c in best])
    expect("layouts of the best", [next(r.all("code")).text() for r in root.by_id("best").rows()],
           [c["options"] for c in best])
    expect("front", [r.values() for r in root.by_id("front").rows()],
           [[c["step_s"], c["reserved_bytes"], c["gpus"], c["dollars_per_step"]]
            for c in answer["pareto"]])
    rows = root.by_id("neighbours").rows()
    expect("neighbours", [r.values() for r in rows],
           [[n["step_s"], *([n["step_s"] / best[0]["step_s"] - 1] if n["fits"] else []),
             n["reserved_bytes"]] for n in answer["neighbours"]])
    expect("why they lose", [list(r.all("td"))[-1].text() for r in rows],
           [n["loses_by"] for n in answer["neighbours"]])
    expect("their values", [next(r.all("b")).text() for r in rows],
           [n["value"] for n in answer["neighbours"]])
    check_rejected(root, answer)


def check_rejected(root, answer):
    told = {}
    for row in root.by_id("rejected").rows():
        kind, reason = [c.text() for c in row.all("td")][1:]
        told[("memory: " if kind == "holds too much" else "") + reason] = int(row.values()[0])
    expect("rejected", told, answer["rejected"])


def check_time(root, best):
    time = best["time"]
    want = {**{k: v for k, v in time.items() if k != "exposed"},
            **{f"exposed {k}": v for k, v in time["exposed"].items()}}
    told = {}
    for row in root.by_id("time").rows():
        name = next(c for c in next(row.all("th")).children if isinstance(c, str)).strip()
        told[name], share = row.values()
        near(f"share of {name}", share, told[name] / best["step_s"])
    expect("parts of a step", told, {k: v for k, v in want.items() if v >= 1e-4 * best["step_s"]})


def check_memory(root, best):
    names = [h.text() for h in root.by_id("memory-stages").all("th")
             if h.attrs.get("scope") == "col"][2:]
    rows = root.by_id("memory-stages").rows()
    fullest = max(rows, key=lambda r: r.values()[-1]).values()[1:]
    expect("stages", len(rows), best["layout"]["pp"])
    for name, value in zip(names, fullest):
        near(f"memory: {name}", value, best["memory_bytes"]["total" if name == "all" else name])
    near("held", sum(r.values()[0] for r in root.by_id("memory-held").rows()),
         best["memory_bytes"]["total"])
    bars = [s for s in root.all("svg", "bar") if (s.attrs.get("aria-label") or "").startswith("stage")]
    ends = [max(int(r.attrs.get("x", 0)) + int(r.attrs["width"]) for r in bar.all("rect")
                if r.attrs["class"] != "track") for bar in bars]
    expect("a bar for each stage", len(bars), len(rows))
    for end, row in zip(ends, rows):
        near("a bar is as long as its sum", end / ends[0], row.values()[-1] / rows[0].values()[-1],
             2e-3)


def check_run(root, answer):
    best = answer["best"][0]
    goal = [r.values()[0] for r in root.by_id("goal").rows()]
    expect("goal", [goal[0], *goal[2:]],
           [answer["query"]["tokens"], best["days"], best["ideal_days"], best["gpu_hours"],
            best["dollars"], best["megawatt_hours"]])
    expect("goodput", [r.values()[0] for r in root.by_id("goodput").rows()][:2],
           [best["goodput"], best["checkpoint_every_s"]])
    expect("figures", root.by_id("figures").values(),
           [best["step_s"], best["reserved_bytes"], best["tokens_per_s_per_gpu"], best["mfu"],
            best["days"], best["dollars"], best["goodput"]])


def check_points(root, answer):
    points = list(root.all("g", "pt"))
    layouts = {(c["step_s"], c["reserved_bytes"], c["gpus"])
               for c in answer["best"] + answer["pareto"]}
    expect("points", len(points), len(layouts))
    places = [(float(p.parent.attrs["x"].rstrip("%")), float(p.parent.attrs["y"])) for p in points]
    for i, x in enumerate(sorted(c[1] for c in layouts)):
        near("points lie by their memory", sorted(p[0] for p in places)[i] / max(p[0] for p in places),
             x / max(c[1] for c in layouts), 2e-3)
    won = [place for place, p in zip(places, points) if "won" in p.attrs["class"].split()]
    expect("the winner lies lowest", [y for _, y in won], [max(y for _, y in places)])
    for point in points:
        expect("a point can be reached", point.attrs.get("tabindex"), "0")
        expect("a point has words", point.attrs["aria-label"], next(point.all("title")).text())


def check_derivation(root, args):
    run = subprocess.run([ECHELON, "plan", *args, "--explain", "--json"], text=True, check=True,
                         capture_output=True, timeout=60)
    lines = json.loads(run.stdout)["derivation"]
    told = [r for t in root.by_id("derivation").all("table") for r in t.rows()]
    expect("derivation: values", [v for r in told for v in r.values()], [l["value"] for l in lines])
    expect("derivation: words", [[next(r.all("th")).text(), next(r.all("td")).text()] for r in told],
           [[l["what"], l["formula"]] for l in lines])
    expect("derivation: sections",
           [s.text() for s in root.by_id("derivation").all("summary")],
           list(dict.fromkeys(l["section"] for l in lines)))


# --- what to type ---

def copies(node):
    return [b.attrs["data-copy"] for b in node.all("button") if "data-copy" in b.attrs]


def check_commands(root, answer):
    """Every command that is offered is taken, and asks about the very layout of its row."""
    commands = copies(root.by_id("best"))
    expect("a command for each of the best", len(commands), len(answer["best"]))
    for command, candidate in zip(commands, answer["best"]):
        words = shlex.split(command)
        expect("a command", words[:2], ["echelon", "sim"])
        for verb in ("sim", "fit"):
            run = subprocess.run([ECHELON, verb, *words[2:], "--json"], text=True,
                                 capture_output=True, timeout=60)
            expect(f"{verb}: exit status, stderr", (run.returncode, run.stderr), (0, ""))
            told = json.loads(run.stdout)
            if verb == "fit":
                near("fit of a copied command", told["reserved_bytes"], candidate["reserved_bytes"])
            else:
                near("sim of a copied command", told["step_s"], candidate["step_s"], 1e-9)


def check_emitted(root, args):
    emitted = subprocess.run([ECHELON, "plan", *args, "--emit", "megatron"], text=True, check=True,
                             capture_output=True, timeout=60).stdout
    box = next(root.by_id("type").all("div", "code"))
    expect("what to type", next(box.all("code")).text(), emitted)
    expect("what is copied", copies(box), [emitted])


# --- pages ---

def test_values(folder):
    text, answer = plan(ASKED, os.path.join(folder, "page.html"))
    root = sound("page", text)
    check_lists(root, answer)
    check_time(root, answer["best"][0])
    check_memory(root, answer["best"][0])
    check_run(root, answer)
    check_points(root, answer)
    check_derivation(root, ASKED)
    check_commands(root, answer)
    check_emitted(root, ASKED)


def test_own_programs(folder):
    """Where sums are read off our own programs the page has theirs."""
    text, answer = plan(["--model", "gpt2-124m", "--cluster", "cpu-64c-avx512", "--gpus", "2", "--seq",
                         "256", "--global-batch", "8", "--precision", "fp32", "--engine", "echelon"],
                        os.path.join(folder, "own.html"))
    root = sound("own", text)
    best = answer["best"][0]
    expect("own: exact", best["exact"], True)
    expect("own: figures", root.by_id("figures").values()[:2],
           [best["step_s"], best["reserved_bytes"]])
    expect("own: said", ", exact" in root.by_id("figures").text(), True)
    check_memory(root, best)
    expect("own: far below the capacity, whose line is not drawn",
           [p for p in root.all("path", "mark")] + [p for p in root.all("line", "mark")], [])
    expect("own: the derivation has its programs",
           any("read off the programs" in s.text() for s in root.by_id("derivation").all("summary")),
           True)
    expect("own: no goal", [t for t in root.all("table") if t.attrs.get("id") == "goal"], [])


def test_what_does_not_fit(folder):
    text, answer = plan(NOT_FITTING, os.path.join(folder, "none.html"), want=3)
    root = sound("nothing fits", text)
    nearest = answer["nearest"]
    expect("nothing fits: best", answer["best"], [])
    expect("nothing fits: verdict", "does not fit" in root.by_id("verdict").text(), True)
    expect("nothing fits: figures", root.by_id("figures").values()[:1], [nearest["reserved_bytes"]])
    expect("nothing fits: cures", [c["change"] for c in nearest["cures"]],
           copies(root.by_id("cures")))
    expect("nothing fits: what they save", [r.values()[1:] for r in root.by_id("cures").rows()],
           [[c["saves_bytes"], c["time_ratio"]] for c in nearest["cures"]])
    expect("nothing fits: no best", [t for t in root.all("table") if t.attrs.get("id") == "best"], [])
    check_rejected(root, answer)


def test_too_slow(folder):
    text, _ = plan([*ASKED, "--days", "1"], os.path.join(folder, "slow.html"), want=3)
    expect("too slow: said", "not met" in sound("too slow", text).by_id("verdict").text(), True)


def write_hostile_model(folder):
    inside = os.path.join(folder, HOSTILE.replace("/", "\u2215"))
    os.mkdir(inside)
    config = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
              "vocab_size": 1000, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False}
    with open(os.path.join(inside, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    return inside


def test_hostile_names(folder):
    inside = write_hostile_model(folder)
    text, _ = plan(["--model", inside, "--cluster", "a100-sxm-80", "--gpus", "2", "--seq", "512",
                    "--global-batch", "8", "--engine", "megatron"],
                   os.path.join(folder, "hostile.html"))
    root = sound("hostile", text)
    for where in ("title", "h1"):
        told = next(root.all(where)).text()
        expect(f"hostile: the name in <{where}> is words",
               "<img src=x onerror=alert(1)>\"'&amp;<" in told or "<img src=x" in told, True)
    expect("hostile: nothing turns the writing", "\u202e" in text, False)
    words = shlex.split(copies(root.by_id("best"))[0])
    expect("hostile: the folder is one word", words[words.index("--model") + 1],
           inside.replace("\u202e", "\ufffd"))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for test in (test_values, test_own_programs, test_what_does_not_fit, test_too_slow,
                     test_hostile_names):
            test(folder)
    print("\n".join(failures) or "all as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
