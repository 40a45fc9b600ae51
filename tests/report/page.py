"""What the tests of the page of a plan share: making pages, and reading them as a tree."""
import base64
import hashlib
import html.parser
import json
import os
import subprocess

ECHELON = os.path.join(os.environ["ECH_BUILD"], "echelon")
ASKED = ["--model", "llama-2-70b", "--cluster", "h100-sxm-80", "--gpus", "64", "--seq", "4096",
         "--global-batch", "512", "--engine", "megatron", "--tokens", "1e12", "--top", "6",
         "--fewer", "--optimizer", "adamw-bf16", "--headroom", "5%"]
NOT_FITTING = ["--model", "llama-2-70b", "--cluster", "rtx-4090", "--gpus", "8", "--seq", "4096",
               "--global-batch", "64", "--engine", "megatron", "--zero", "1", "--recompute", "none"]
VOID = {"meta", "br"}

failures = []


def expect(what, got, want):
    if got != want:
        failures.append(f"{what}: got {got!r}, wanted {want!r}")


def plan(args, path, want=0):
    """The page's text, and the answer as JSON."""
    run = subprocess.run([ECHELON, "plan", *args, "--html", path, "--json"], text=True,
                         stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert run.returncode == want, (run.returncode, run.stderr)
    with open(path, encoding="utf-8") as f:
        return f.read(), json.loads(run.stdout)


def policy_hash(text):
    """As a policy names what it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class Node:
    def __init__(self, tag, attrs, parent):
        self.tag, self.attrs, self.parent = tag, dict(attrs), parent
        self.children = []  # nodes and strings

    def all(self, tag=None, klass=None):
        for child in self.children:
            if isinstance(child, Node):
                if (tag in (None, child.tag) and
                        (klass is None or klass in (child.attrs.get("class") or "").split())):
                    yield child
                yield from child.all(tag, klass)

    def by_id(self, name):
        return next(n for n in self.all() if n.attrs.get("id") == name)

    def text(self):
        return "".join(c if isinstance(c, str) else c.text() for c in self.children)

    def values(self):
        """The whole numbers behind what is written."""
        return [float(n.attrs["value"]) for n in self.all("data")]

    def rows(self):
        """Of a table: its rows but for the head."""
        return [r for body in self.all("tbody") for r in body.all("tr")]


class Reader(html.parser.HTMLParser):
    """A tree of a document whose tags all close."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = self.at = Node("", {}, None)
        self.faults = []

    def handle_starttag(self, tag, attrs):
        if len({k for k, _ in attrs}) != len(attrs):
            self.faults.append(f"<{tag}> has an attribute twice")
        node = Node(tag, attrs, self.at)
        self.at.children.append(node)
        if tag not in VOID:
            self.at = node

    def handle_startendtag(self, tag, attrs):
        self.at.children.append(Node(tag, attrs, self.at))

    def handle_endtag(self, tag):
        if tag != self.at.tag:
            self.faults.append(f"</{tag}> closes <{self.at.tag}> (line {self.getpos()[0]})")
        if self.at.parent:
            self.at = self.at.parent

    def handle_data(self, data):
        self.at.children.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    if reader.at is not reader.root:
        reader.faults.append(f"<{reader.at.tag}> is not closed")
    return reader.root, reader.faults
