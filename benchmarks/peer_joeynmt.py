"""JoeyNMT as a peer of benchmarks/peers.py. Runs in an environment of its own and does not import latentalign.

    python benchmarks/peer_joeynmt.py PROBLEM.json lstm|transformer

Reads commands as lines of JSON on standard input and answers each with one number on standard output:
{"train": SECONDS} gives target tokens per second, {"beam": K, "batch": B} gives sentences per second.
"""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace

import torch
from joeynmt.batch import Batch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

UNK, PAD, BOS, EOS = 0, 1, 2, 3
SPECIALS = SimpleNamespace(
    unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
    unk_id=UNK, pad_id=PAD, bos_id=BOS, eos_id=EOS, sep_id=None,
)  # fmt: skip


def build(problem: dict, kind: str) -> Model:
    """A model of the sizes that the problem states."""
    vocabulary = Vocabulary([str(i) for i in range(4, problem["vocabulary"])], SPECIALS)
    size, dropout = problem["size"], problem["dropout"]
    embeddings = {"embedding_dim": size, "scale": kind == "transformer"}
    if kind == "transformer":
        part = {
            "type": "transformer", "num_layers": problem["layers"], "num_heads": problem["heads"],
            "embeddings": embeddings, "hidden_size": size, "ff_size": 4 * size, "dropout": dropout,
            "layer_norm": "pre",
        }  # fmt: skip
        config = {"encoder": part, "decoder": dict(part), "tied_embeddings": True, "tied_softmax": True}
    else:
        shared = {"type": "recurrent", "rnn_type": "lstm", "embeddings": embeddings, "hidden_size": size}
        shared |= {"num_layers": 1, "dropout": dropout}
        decoder = {**shared, "attention": "bahdanau", "input_feeding": True, "init_hidden": "zeros"}
        config = {
            "encoder": {**shared, "bidirectional": True},
            "decoder": {**decoder, "hidden_dropout": dropout},
        }
    torch.manual_seed(0)
    model = build_model(config, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", 0.0)
    return model


def pad(sentences: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, sentences))
    return torch.tensor([s + [PAD] * (longest - len(s)) for s in sentences])


def make_batch(source: list[list[int]], target: list[list[int]] | None) -> Batch:
    """JoeyNMT's own batch, the longest source first."""
    batch = Batch(
        src=pad([[*s, EOS] for s in source]),
        src_length=torch.tensor([len(s) + 1 for s in source]),
        src_prompt_mask=None,
        trg=None if target is None else pad([[BOS, *t, EOS] for t in target]),
        trg_prompt_mask=None,
        indices=torch.arange(len(source)),
        device=torch.device("cpu"),
        pad_index=PAD,
        eos_index=EOS,
        is_train=target is not None,
    )
    batch.sort_by_src_length()
    return batch


class Peer:
    """What is asked of JoeyNMT."""

    def __init__(self, problem: dict, kind: str) -> None:
        torch.set_num_threads(problem["threads"])
        self.model, self.sources = build(problem, kind), problem["sources"]
        self.batches = [make_batch(*pair) for pair in problem["batches"]]
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-9)
        self.update(self.batches[0])

    def update(self, batch: Batch) -> int:
        """One update, as JoeyNMT's trainer does it; its target tokens."""
        self.model.train()
        loss, *_ = self.model(return_type="loss", **vars(batch))
        batch.normalize(loss, "tokens").backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.adam.step()
        self.adam.zero_grad()
        return int(batch.ntokens)

    def train(self, seconds: float) -> float:
        tokens, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds or not tokens:
            tokens += sum(self.update(batch) for batch in self.batches)
        return tokens / (time.perf_counter() - start)

    def translate(self, beam: int, batch: int) -> float:
        self.model.eval()
        step = max(1, len(self.sources) // (16 * batch))  # sorted by length: take every so many
        sources = self.sources[step // 2 :: step]
        groups = [sources[i : i + batch] for i in range(0, len(sources), batch)]
        start = time.perf_counter()
        for group in groups:
            longest = max(map(len, group)) + 1
            search(self.model, make_batch(group, None), longest, beam, 1.0, generate_unk=True)
        return sum(map(len, groups)) / (time.perf_counter() - start)


def main() -> None:
    """Answer commands until the input ends."""
    with open(sys.argv[1], encoding="utf-8") as file:
        peer = Peer(json.load(file), sys.argv[2])
    for line in sys.stdin:
        asked = json.loads(line)
        print(peer.train(asked["train"]) if "train" in asked else peer.translate(**asked), flush=True)


if __name__ == "__main__":
    main()
