"""Word alignments of a MarianMT model: its cross-attention beside latent alignment around it.

    python benchmarks/wrap_marian.py OUT

A new MarianMT model with a small vocabulary of subwords learns to translate the demo language with the loss of
`transformers` itself. Then `latentalign.wrap` puts a latent alignment around it, and `fit(mode="align")` learns
alignments with the model frozen. The script prints the alignment error rate of both on test sentences with gold links.
OUT keeps the trained model, so a second run only aligns. Gold links of the test part choose nothing: the best layer and
head of cross-attention is chosen by gold links of the validation part. Attention is read at the step that predicts a
word, or at the next step, which has read it.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    get_linear_schedule_with_warmup,
)

import latentalign
from latentalign import Wrapped
from latentalign.data.demo import splits
from latentalign.data.pairs import Pair
from latentalign.links.scores import Scores, score
from latentalign.links.sets import Gold, Links
from latentalign.links.words import word_links

END, UNKNOWN, PAD = 0, 1, 2


def make_tokenizer(lines: list[str], size: int) -> PreTrainedTokenizerFast:
    """Subwords of both languages together, made by byte-pair encoding."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["</s>", "<unk>", "<pad>"]
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", END)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )


def make_marian(vocabulary: int) -> MarianMTModel:
    """A small MarianMT model with random weights."""
    sizes = {"d_model": 128, "encoder_layers": 3, "decoder_layers": 3}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes |= {"encoder_ffn_dim": 384, "decoder_ffn_dim": 384, "max_position_embeddings": 128}
    config = MarianConfig(
        vocab_size=vocabulary,
        decoder_vocab_size=vocabulary,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=END,
        scale_embedding=True,
        dropout=0.1,
        activation_function="relu",
        **sizes,
    )
    return MarianMTModel(config)


def pad(rows: list[list[int]], value: int) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def train_marian(model: MarianMTModel, source: list[list[int]], target: list[list[int]], epochs: int) -> None:
    """Ordinary training: cross-entropy of the model's own `loss`, Adam, warm-up and linear decay."""
    size = 64
    by_length = sorted(range(len(source)), key=lambda i: (len(source[i]), len(target[i])))
    batches = [by_length[i : i + size] for i in range(0, len(by_length), size)]
    steps = epochs * len(batches)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    model.train()
    for epoch in range(epochs):
        total = torch.zeros(())
        for number in torch.randperm(len(batches)).tolist():
            chosen = batches[number]
            ids, labels = pad([source[i] for i in chosen], PAD), pad([target[i] for i in chosen], -100)
            loss = model(input_ids=ids, attention_mask=(ids != PAD).long(), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(
            f"epoch {epoch + 1}: loss {total / len(batches):.3f}, CPU {time.process_time():.0f} s", flush=True
        )
    model.eval()


def trained_marian(
    folder: Path, train: list[Pair], epochs: int
) -> tuple[MarianMTModel, PreTrainedTokenizerFast]:
    """The model and tokenizer of a folder; they are trained first if the folder has none."""
    if not (folder / "config.json").exists():
        lines = [list(side) for side in zip(*text(train), strict=True)]
        tokenizer = make_tokenizer(lines[0] + lines[1], 1600)
        model = make_marian(len(tokenizer))
        train_marian(model, tokenizer(lines[0]).input_ids, tokenizer(lines[1]).input_ids, epochs)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    model = MarianMTModel.from_pretrained(
        folder, attn_implementation="eager"
    )  # other kernels hide their attention
    return model.eval(), PreTrainedTokenizerFast.from_pretrained(folder)


def text(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(" ".join(pair.source), " ".join(pair.target)) for pair in pairs]


def error_rate(pairs: list[Pair], links: list[Links]) -> Scores:
    return score([Gold(pair.sure, pair.possible) for pair in pairs], links, bootstrap=0)


@torch.no_grad()
def attention_links(
    model: MarianMTModel, wrapped: Wrapped, pairs: list[Pair]
) -> dict[tuple[str, bool], list[Links]]:
    """Links of the word with the most cross-attention: for each layer and head, and for their mean.

    An output may be linked by the attention that predicted it, or by that of the next step, which has read it (True).
    """
    found: dict[tuple[str, bool], list[Links]] = {}
    for tokens in wrapped.reader.pairs(text(pairs)):
        ids, target = torch.tensor([tokens.source.ids]), torch.tensor([[PAD, *tokens.target.ids]])
        layers = model(input_ids=ids, decoder_input_ids=target, output_attentions=True).cross_attentions
        every = torch.stack(layers)[:, 0]  # layer, head, output, source
        maps = {
            f"layer {n + 1}, head {h + 1}": every[n, h]
            for n in range(len(every))
            for h in range(every.shape[1])
        }
        maps["mean of all"] = every.mean((0, 1))
        for name, matrix in maps.items():
            for later in (False, True):
                rows = matrix[1:] if later else matrix[:-1]
                words = word_links(rows.numpy(), tokens.source.numbers, tokens.target.numbers)
                found.setdefault((name, later), []).append(words.best(null=1.0))  # attention has no NULL
    return found


def difference(model: MarianMTModel, wrapped: Wrapped, pairs: list[Pair]) -> tuple[float, float]:
    """Largest |log p of the wrapped model - log p of the model|, and the model's perplexity per word.

    In float64: in float32, batches of different shapes differ by more than that.
    """
    wrapped.double()
    worst, total, words = 0.0, 0.0, 0
    for tokens, found in zip(
        wrapped.reader.pairs(text(pairs)), wrapped.log_likelihoods(text(pairs)), strict=True
    ):
        labels = torch.tensor([tokens.target.ids])
        with torch.no_grad():
            own = model(input_ids=torch.tensor([tokens.source.ids]), labels=labels).logits.log_softmax(-1)
        own = own[0].gather(1, labels[0].unsqueeze(1)).squeeze(1)
        worst = max(worst, float((own - found).abs().max()))
        total, words = total - float(own.sum()), words + len(tokens.target.words) + 1
    wrapped.float()
    return worst, math.exp(total / words)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder for the trained model")
    parser.add_argument(
        "--pairs", type=int, default=10_000, help="pairs that the translation model learns from"
    )
    parser.add_argument("--epochs", type=int, default=10, help="epochs of the translation model")
    parser.add_argument("--fit", type=int, default=5_000, help="pairs that the alignments are learned from")
    parser.add_argument("--test", type=int, default=1_000, help="test pairs")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = splits(options.pairs, 1_000, options.test)
    model, tokenizer = trained_marian(options.out / "marian", data["train"], options.epochs)
    wrapped = latentalign.wrap(model, tokenizer=tokenizer)
    worst, perplexity = difference(model, wrapped, data["test"][:200])
    print(f"perplexity per word {perplexity:.3f}; wrapping changes log p by at most {worst:.1e}")
    began = time.process_time()
    wrapped.fit(text(data["train"][: options.fit]))
    seconds = time.process_time() - began
    rows = {
        "latentalign.wrap, exact posterior": error_rate(data["test"], wrapped.align(text(data["test"])).links)
    }
    on_valid = attention_links(model, wrapped, data["valid"][:200])
    on_test = attention_links(model, wrapped, data["test"])
    for later, when in ((False, ""), (True, ", one step later")):
        heads = [name for name, shifted in on_valid if shifted == later and name != "mean of all"]
        best = min(heads, key=lambda name: error_rate(data["valid"][:200], on_valid[name, later]).aer)
        for name, label in (
            ("mean of all", "mean of all layers and heads"),
            (best, f"best on valid: {best}"),
        ):
            rows[f"cross-attention, {label}{when}"] = error_rate(data["test"], on_test[name, later])
    print(f"fit(mode='align') on {options.fit} pairs took {seconds:.0f} s of CPU time\n")
    print("| links from | AER | precision | recall |\n|---|---:|---:|---:|")
    for name, found in rows.items():
        print(f"| {name} | {found.aer:.3f} | {found.precision:.3f} | {found.recall:.3f} |")


if __name__ == "__main__":
    main()
