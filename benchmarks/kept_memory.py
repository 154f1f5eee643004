"""What an update costs with and without keeping freed memory: processor time, page faults and peak memory.

    python benchmarks/kept_memory.py [--batch 32 192] [--objective soft] [--rounds 5]

A model of the sizes of benchmarks/peers.py is trained on random sentences, in a process of its own for each setting.
Both settings take turns. Prints medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys

VOCABULARY, SIZE = 7900, 256
WARM_UP, UPDATES = 3, 8


def measure(batch_size: int, objective_name: str, *, keep: bool) -> dict[str, float]:
    """Milliseconds of processor time and page faults of an update, and the peak memory of this process in MB."""
    import torch

    from latentalign import OBJECTIVES
    from latentalign.tasks.nmt.decode import pair_batch
    from latentalign.tasks.nmt.inference_network import InferenceConfig
    from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
    from latentalign.training.adam import FusedAdam
    from latentalign.training.memory import keep_freed_memory, peak_memory_mb

    if keep and not keep_freed_memory():
        raise SystemExit("this system cannot keep freed memory")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    sizes = {"encoder": SIZE, "decoder": SIZE, "attention": SIZE, "head": SIZE}
    config = ModelConfig(
        embedding=SIZE, encoder_layers=1, decoder_layers=1, **{f"{k}_size": v for k, v in sizes.items()}
    )
    objective = OBJECTIVES[objective_name]()
    model = TranslationModel(
        config,
        source_size=VOCABULARY,
        target_size=VOCABULARY,
        distribution=objective.distribution,
        inference=InferenceConfig(layers=1, size=SIZE) if objective.needs_inferred else None,
    ).train()
    optimiser = FusedAdam(model.parameters())

    def sentences() -> list[list[int]]:
        return [random.choices(range(4, VOCABULARY), k=random.randint(4, 40)) for _ in range(batch_size)]

    for update in range(WARM_UP + UPDATES):
        if update == WARM_UP:
            before = resource.getrusage(resource.RUSAGE_SELF)
        optimiser.zero_grad()
        objective(model.latent(pair_batch(sentences(), sentences()))).loss().backward()
        optimiser.step(1e-3)
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    faults = after.ru_minflt - before.ru_minflt
    return {"ms": 1e3 * seconds / UPDATES, "faults": faults / UPDATES, "peak_mb": peak_memory_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 192])
    parser.add_argument("--objective", default="soft")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=["keep", "return"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(measure(options.batch[0], options.objective, keep=options.child == "keep")))
        return
    hidden = ("MALLOC_", "GLIBC_TUNABLES")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    print(
        "| batch | freed memory | CPU ms per update | page faults per update | peak MB |\n" + "|---" * 5 + "|"
    )
    for batch in options.batch:
        found: dict[str, list[dict[str, float]]] = {"return": [], "keep": []}
        for _ in range(options.rounds):
            for name, rounds in found.items():
                command = [sys.executable, __file__, f"--child={name}", f"--batch={batch}"]
                command.append(f"--objective={options.objective}")
                output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
                rounds.append(json.loads(output))
        for name, rounds in found.items():
            ms, faults, peak = (
                statistics.median(r[key] for r in rounds) for key in ("ms", "faults", "peak_mb")
            )
            print(f"| {batch} | {name} | {ms:.0f} | {faults:,.0f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
