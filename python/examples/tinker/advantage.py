"""The advantage of a recipe for two agents of two turns, as data for Tinker; it needs no service. In a script that trains with
the cookbook, these lines come before `tinker_cookbook.rl.train.main`, and ADVLAB_RECIPE is in the environment:

    import advlab.tinker
    advlab.tinker.patch()
"""

from pathlib import Path

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

import advlab
from advlab.tinker import assemble_training_data, compute_advantages

recipe = advlab.load(Path(__file__).with_name("turns.rhai"))


def agent(*turns):
    """A trajectory of turns, each with its tokens and its reward; the environment answers with token 9."""
    seen, made = [1], []
    for tokens, reward in turns:
        action = TokensWithLogprobs(tokens, [-0.5] * len(tokens))
        made.append(Transition(tinker.ModelInput.from_ints(seen), action, reward, len(made) == len(turns) - 1))
        seen = [*seen, *tokens, 9]
    return Trajectory(made, tinker.ModelInput.from_ints(seen))


groups = [TrajectoryGroup([agent(([2, 3], 0.0), ([4], 1.0)), agent(([5], 0.0), ([6, 7], 0.0))], [0.0, 0.0], [{}, {}])]
advantages = compute_advantages(groups, recipe)
data, _ = assemble_training_data(groups, advantages)
for datum in data:
    print([round(value, 3) for value in datum.loss_fn_inputs["advantages"].tolist()])
