"""Translation in plain PyTorch, as a good engineer would write it first: the peer that benchmarks/peers.py measures.

`LSTMPeer` is the paper's model with soft attention or the exact sum over alignments; `TransformerPeer` is
torch.nn.Transformer with tied embeddings. Neither uses anything of latentalign.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

PAD, BOS = 0, 2
LOGITS = 2**24
"""Logits that the exact sum keeps in memory at once; the others are computed again in the backward pass."""


def pad(sentences: list[list[int]]) -> Tensor:
    """(B, L) tokens, filled with PAD."""
    longest = max(map(len, sentences))
    return torch.tensor([s + [PAD] * (longest - len(s)) for s in sentences])


def shift(target: Tensor) -> Tensor:
    """The words before each target word."""
    return F.pad(target[:, :-1], (1, 0), value=BOS)


class LSTMPeer(nn.Module):
    """Bidirectional encoder, LSTM decoder with MLP attention and input feeding, tanh head."""

    def __init__(self, vocabulary: int, size: int, dropout: float, *, exact: bool) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, size), nn.Embedding(vocabulary, size)
        self.encoder = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(3 * size, size)
        self.key, self.query = nn.Linear(2 * size, size, bias=False), nn.Linear(size, size, bias=False)
        self.score = nn.Linear(size, 1, bias=False)
        self.from_member, self.from_state = nn.Linear(2 * size, size), nn.Linear(size, size, bias=False)
        self.output, self.dropout = nn.Linear(size, vocabulary), nn.Dropout(dropout)
        self.exact, self.size = exact, size

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Members, their share of the attention scores, and where they exist."""
        mask = source != PAD
        packed = pack_padded_sequence(
            self.dropout(self.source(source)), mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        memory, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        return memory, self.key(memory), mask

    def step(
        self, word: Tensor, state: tuple[Tensor, Tensor, Tensor], memory: Tensor, key: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Query, log prior and next state of one position."""
        h, c, context = state
        h, c = self.cell(torch.cat([word, context], -1), (h, c))
        scores = self.score(torch.tanh(self.query(h).unsqueeze(1) + key)).squeeze(-1)
        log_prior = scores.masked_fill(~mask, -1e30).log_softmax(-1)
        context = torch.bmm(log_prior.exp().unsqueeze(1), memory).squeeze(1)
        return h, log_prior, (h, c, context)

    def start(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        zeros = like.new_zeros(len(like), self.size)
        return zeros, zeros, like.new_zeros(len(like), 2 * self.size)

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Minus the log-likelihood of the target."""
        memory, key, mask = self.encode(source)
        words, state = self.dropout(self.target(shift(target))), self.start(memory)
        queries, priors, contexts = [], [], []
        for word in words.unbind(1):
            query, log_prior, state = self.step(word, state, memory, key, mask)
            queries.append(query)
            priors.append(log_prior)
            contexts.append(state[2])
        query = self.from_state(torch.stack(queries, 1))
        real = target != PAD
        if not self.exact:
            hidden = torch.tanh(self.from_member(torch.stack(contexts, 1)) + query)[real]
            return F.cross_entropy(self.output(self.dropout(hidden)), target[real], reduction="sum")
        rows, _ = real.nonzero(as_tuple=True)
        query, log_prior, words_out = query[real], torch.stack(priors, 1)[real], target[real]
        member = self.from_member(memory)
        size = max(1, LOGITS // (member.shape[1] * self.output.out_features))
        parts = [
            checkpoint(self.marginal, q, member[r], p, y, use_reentrant=False)
            for q, r, p, y in zip(
                query.split(size), rows.split(size), log_prior.split(size), words_out.split(size), strict=True
            )
        ]
        return -torch.cat(parts).sum()

    def marginal(self, query: Tensor, member: Tensor, log_prior: Tensor, word: Tensor) -> Tensor:
        """log sum_z p(z) f(y | z) of some target words."""
        logits = self.output(self.dropout(torch.tanh(query.unsqueeze(1) + member)))
        index = word.view(-1, 1, 1).expand(-1, member.shape[1], 1)
        log_f = logits.gather(-1, index).squeeze(-1) - logits.logsumexp(-1)
        return (log_prior + log_f).logsumexp(-1)

    @torch.no_grad()
    def translate(self, source: Tensor, beam: int) -> Tensor:
        """Beam search for as many words as the longest source has, and one more."""
        memory, key, mask = (x.repeat_interleave(beam, 0) for x in self.encode(source))
        member, batch = self.from_member(memory), len(source)
        state = self.start(memory)
        word = torch.full((batch * beam,), BOS)
        score = torch.full((batch, beam), -1e30)
        score[:, 0] = 0.0
        found = word.new_empty(batch * beam, 0)
        for _ in range(source.shape[1] + 1):
            query, log_prior, state = self.step(self.target(word), state, memory, key, mask)
            query = self.from_state(query)
            if self.exact:
                logits = self.output(torch.tanh(query.unsqueeze(1) + member)).log_softmax(-1)
                log_prob = (log_prior.unsqueeze(-1) + logits).logsumexp(1)
            else:
                log_prob = self.output(torch.tanh(query + self.from_member(state[2]))).log_softmax(-1)
            joint = (score.unsqueeze(-1) + log_prob.view(batch, beam, -1)).flatten(1)
            score, best = joint.topk(beam)
            vocabulary = log_prob.shape[-1]
            parent = (torch.arange(batch).unsqueeze(1) * beam + best // vocabulary).flatten()
            word = (best % vocabulary).flatten()
            state = tuple(s[parent] for s in state)  # type: ignore[assignment]
            found = torch.cat([found[parent], word.unsqueeze(1)], 1)
        return found


class TransformerPeer(nn.Module):
    """torch.nn.Transformer, pre-norm, with learned positions and one embedding for everything."""

    def __init__(self, vocabulary: int, size: int, dropout: float, *, layers: int, heads: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, size), nn.Embedding(512, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        self.net = nn.Transformer(
            size, heads, layers, layers, 4 * size, dropout, batch_first=True, norm_first=True
        )
        self.output, self.dropout = nn.Linear(size, vocabulary), nn.Dropout(dropout)
        self.output.weight = self.embedding.weight

    def embed(self, words: Tensor) -> Tensor:
        scaled = self.embedding(words) * self.embedding.embedding_dim**0.5
        return self.dropout(scaled + self.positions.weight[: words.shape[1]])

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Minus the log-likelihood of the target."""
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        empty = source == PAD
        out = self.net(
            self.embed(source), self.embed(shift(target)), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=empty, memory_key_padding_mask=empty,
        )  # fmt: skip
        real = target != PAD
        return F.cross_entropy(self.output(out[real]), target[real], reduction="sum")
