"""An agent loop of verl's: two turns, in one row with a hole, or in two rows for every other session.

`actor_rollout_ref.rollout.agent.agent_loop_config_path` names `two_turns.yaml`.
"""

from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

OBSERVED = [5, 6]  # What the environment answers to the first turn.


class TwoTurns(SingleTurnAgentLoop):
    async def run(self, sampling_params, **kwargs):
        prompt = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
        first, logp, versions = await self.turn(prompt, sampling_params)
        second, more, _ = await self.turn(prompt + first + OBSERVED, sampling_params)
        state = ["start", "even" if sum(first) % 2 == 0 else "odd"]
        scores = [float(first[0] % 2), float(second[-1] % 3)]
        made = lambda prompt, response, logp, mask, **fields: AgentLoopOutput(
            prompt_ids=prompt, response_ids=response, response_logprobs=logp, response_mask=mask, num_turns=4,
            metrics=AgentLoopMetrics(), extra_fields={**versions, **fields},
        )  # fmt: skip
        if sum(first) % 4 < 2:
            mask = [1] * len(first) + [0] * len(OBSERVED) + [1] * len(second)
            logps = [*logp, *(0.0 for _ in OBSERVED), *more]
            return made(prompt, first + OBSERVED + second, logps, mask, state=state, step_reward=scores)
        return [
            made(prompt, first, logp, [1] * len(first), state=state[:1], step_reward=scores[:1]),
            made(prompt + first + OBSERVED, second, more, [1] * len(second), state=state[1:], step_reward=scores[1:]),
        ]

    async def turn(self, prompt, sampling_params):
        params = {**sampling_params, "logprobs": True}
        out = await self.server_manager.generate(request_id=uuid4().hex, prompt_ids=prompt, sampling_params=params)
        return out.token_ids[:3], out.log_probs[:3], out.extra_fields
