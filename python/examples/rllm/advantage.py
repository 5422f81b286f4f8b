"""rLLM's advantage estimator with a recipe, on two groups of trajectories; it needs no rLLM and no GPU. In a training script,
these lines come before the trainer is made; the run needs the estimator `other`, and ADVLAB_RECIPE in the environment:

    import advlab.rllm
    advlab.rllm.register()
"""

import os
from pathlib import Path

import numpy as np

from advlab.rllm import estimate

os.environ.setdefault("ADVLAB_RECIPE", str(Path(__file__).parents[1] / "verl/mine.rhai"))
os.environ.setdefault("ADVLAB_PARAMS", '{"k": 4}')

advantages, returns = estimate([np.array([1.0, 0, 0, 1, 0, 0, 1, 0]), np.array([0.0, 1, 0, 0, 0, 0, 1, 0])])
for group in advantages:
    print(group.round(3))
