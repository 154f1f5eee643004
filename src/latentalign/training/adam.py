"""Adam with PyTorch's fused kernel.

`torch.optim.Optimizer` imports PyTorch's compiler when it is first used: two seconds and 90 MB that an eager run never
needs. This class calls the same kernel and keeps the same state, so results and checkpoints are those of
`torch.optim.Adam(fused=True)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

STATE = ("step", "exp_avg", "exp_avg_sq")


class FusedAdam:
    """Adam (Kingma and Ba, 2015) over a list of parameters."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters, self.betas, self.eps = list(parameters), betas, eps
        self.state: dict[int, dict[str, Tensor]] = {}
        """The moments of each parameter that had a gradient, by its position."""

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update the parameters that have a gradient."""
        used = [(i, p, p.grad) for i, p in enumerate(self.parameters) if p.grad is not None]
        for i, parameter, _ in used:
            if i not in self.state:
                self.state[i] = first_state(parameter)
        states = [self.state[i] for i, _, _ in used]
        adam(
            [p for _, p, _ in used],
            [grad for _, _, grad in used],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=learning_rate,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )

    def tensors(self) -> dict[str, Tensor]:
        """The state as tensors named `position.name`, for a checkpoint."""
        return {f"{i}.{name}": state[name] for i, state in sorted(self.state.items()) for name in STATE}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back the state of a checkpoint."""
        self.state = {}
        for key, tensor in tensors.items():
            position, name = key.split(".", 1)
            parameter = self.parameters[int(position)]
            dtype = torch.float32 if name == "step" else parameter.dtype
            self.state.setdefault(int(position), {})[name] = tensor.to(parameter.device, dtype)


def first_state(parameter: Tensor) -> dict[str, Tensor]:
    """The state of a parameter before its first update."""
    step = torch.zeros((), dtype=torch.float32, device=parameter.device)
    return {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
