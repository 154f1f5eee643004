"""Tiny models to wrap: three of transformers with random weights, and one made of torch.nn.Transformer."""

import random

import torch
from torch import nn

START, END, PAD, WORDS = 1, 2, 0, 24
KINDS = ("marian", "bart", "t5", "t5-untied", "torch")
PAIRS = [([5, 6, 7, 8], [9, 10, 11]), ([12, 6], [13, 14, 15, 16, 5]), ([7], [7])]


class TorchTranslator(nn.Module):
    """torch.nn.Transformer with embeddings, positions and an output layer, and the parts that `wrap` needs."""

    start, end, pad = START, END, PAD

    def __init__(self, words=WORDS, size=16):
        super().__init__()
        self.source, self.target = nn.Embedding(words, size), nn.Embedding(words, size)
        self.places = nn.Embedding(64, size)
        self.transformer = nn.Transformer(size, 2, 1, 1, 32, dropout=0.1, batch_first=True)
        self.transformer.encoder.use_nested_tensor = False  # it would cut padding off
        self.output = nn.Linear(size, words)

    def embed(self, source):
        return self.source(source)

    def encode(self, source, *, exists):
        inputs = self.source(source) + self.places.weight[: source.shape[1]]
        return self.transformer.encoder(inputs, src_key_padding_mask=~exists)

    def decode(self, previous, memory, *, exists):
        inputs = self.target(previous) + self.places.weight[: previous.shape[1]]
        length = previous.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=previous.device).triu(1)
        return self.transformer.decoder(inputs, memory, tgt_mask=future, memory_key_padding_mask=~exists)

    def forward(self, source, previous):
        """Logits of a single pair, written without the parts."""
        return self.output(
            self.transformer(
                self.source(source) + self.places.weight[: source.shape[1]],
                self.target(previous) + self.places.weight[: previous.shape[1]],
                tgt_mask=torch.ones(previous.shape[1], previous.shape[1], dtype=torch.bool).triu(1),
            )
        )


def make_model(kind, words=WORDS):
    """A tiny model in evaluation mode, with random weights that differ from token to token."""
    torch.manual_seed(1)
    if kind == "torch":
        return TorchTranslator(words).eval()
    import transformers

    ids = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": START}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    layers |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    if kind.startswith("t5"):
        tied = kind == "t5"
        config = transformers.T5Config(
            vocab_size=words,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=1,
            num_heads=2,
            tie_word_embeddings=tied,
            **ids,
        )
        model = transformers.T5ForConditionalGeneration(config)
    else:
        name = {"marian": "Marian", "bart": "Bart"}[kind]
        config = getattr(transformers, f"{name}Config")(
            vocab_size=words,
            d_model=16,
            max_position_embeddings=32,
            init_std=0.5,
            forced_eos_token_id=None,
            bos_token_id=START,
            **layers,
            **ids,
            **({"decoder_vocab_size": words} if kind == "marian" else {}),
        )
        model = getattr(transformers, {"marian": "MarianMTModel"}.get(kind, "BartForConditionalGeneration"))(
            config
        )
        model.final_logits_bias.normal_()
    return model.eval()


def own_log_probs(model, source, target):
    """log p of the outputs of one pair by the model's own forward pass, without any padding."""
    source, outputs = torch.tensor([source]), [*target, END]
    previous = torch.tensor([[START, *target]])
    with torch.no_grad():
        if isinstance(model, TorchTranslator):
            logits = model(source, previous)
        else:
            logits = model(input_ids=source, decoder_input_ids=previous).logits
    return logits[0].log_softmax(-1)[torch.arange(len(outputs)), outputs]


def shake(wrapped, size=0.5):
    """Random numbers in every weight of the latent layers, as after training."""
    with torch.no_grad():
        for name, tensor in wrapped.tensors().items():
            tensor.copy_(size * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(name))))
    wrapped.mode = "translate"
    return wrapped


def toy_pairs(count, seed=0):
    """Sentences of 3 to 7 different ids from 5 to 12, and their mirrored translation: id + 8, with a 4 here and there.

    Id 4 comes from no source token.
    """
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        source = rng.sample(range(5, 13), rng.randint(3, 7))
        target = []
        for token in reversed(source):
            target += [token + 8, 4] if rng.random() < 0.15 else [token + 8]
        pairs.append((source, target))
    return pairs


def make_tokenizer(lines, size=80):
    """Subwords by byte-pair encoding, with the special tokens of the tiny models."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from tokenizers.decoders import Metaspace
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), Metaspace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", END)])
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
