"""Word alignments of a MarianMT model: its cross-attention beside latent alignment around it.

    python benchmarks/wrap_marian.py OUT [--pairs 10000] [--epochs 10] [--test 1000]

A new MarianMT model with a small vocabulary of subwords learns to translate the demo language with the loss of
`transformers` itself. Then `latentalign.wrap` puts a latent alignment around it, and `fit(mode="align")` learns
alignments with the model frozen. The script prints the alignment error rate of both on test sentences with gold links.
OUT keeps the trained model, so a second run only aligns. Gold links of the test part choose nothing, except the row
"best head", which is the most that cross-attention could offer to somebody who has gold links. CPU time is user time
plus system time of this process.
"""

from __future__ import annotations

import argparse
import json
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

from latentalign.data.demo import splits

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
        print(f"epoch {epoch + 1}: loss {total / len(batches):.3f}, CPU {time.process_time():.0f} s", flush=True)
    model.eval()


def trained_marian(folder: Path, train: list, epochs: int) -> tuple[MarianMTModel, PreTrainedTokenizerFast]:
    """The model and tokenizer of a folder; they are trained first if the folder has none."""
    if not (folder / "config.json").exists():
        lines = [[" ".join(words) for words in side] for side in zip(*[(p.source, p.target) for p in train])]
        tokenizer = make_tokenizer(lines[0] + lines[1], 1600)
        model = make_marian(len(tokenizer))
        train_marian(model, tokenizer(lines[0]).input_ids, tokenizer(lines[1]).input_ids, epochs)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return MarianMTModel.from_pretrained(folder).eval(), PreTrainedTokenizerFast.from_pretrained(folder)

def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--test", type=int, default=1_000)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = splits(options.pairs, 1_000, options.test)
    model, tokenizer = trained_marian(options.out / "marian", data["train"], options.epochs)

if __name__ == "__main__":
    main()
