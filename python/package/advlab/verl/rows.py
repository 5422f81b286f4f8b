"""Padding rows, and sessions of several trajectories: which rows of verl's batch are responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Rows:
    """The rows to compute on, and where each row gets its values from."""

    chosen: Any
    """Indices of the rows to compute on."""
    source: Any
    """For each row the place in `chosen` of the row whose values it gets, -1 for a padding row."""

    @classmethod
    def of(cls, index: list[Any], mask: Any, rewards: Any, keys: list[str] | None) -> Rows:
        count = len(mask)
        is_row = np.ones(count, bool)
        fillers = [uid for uid in set(index) if str(uid).startswith("pad")]
        if fillers:
            # The default trainer fills batches up with rows without a token: they are no responses.
            is_row = ~(np.isin(index, fillers) & (mask.sum(-1) == 0).numpy() & (rewards == 0).all(-1).numpy())
        rows = np.flatnonzero(is_row)
        source = np.full(count, -1)
        source[rows] = np.arange(len(rows))
        # `{uid}_{session}_{turn}`: of a session's trajectories the last one counts.
        sessions, turns = zip(*(key.rpartition("_")[::2] for key in keys)) if keys else ((), ())
        if len(set(sessions)) == len(sessions) or not all(turn.isdigit() for turn in turns):
            return cls(rows, source)
        last: dict[str, Any] = {}
        for row in rows:
            other = last.setdefault(sessions[row], row)
            if int(turns[row]) > int(turns[other]):
                last[sessions[row]] = row
        chosen = np.array(sorted(last.values()))
        place = {row: at for at, row in enumerate(chosen)}
        source[rows] = [place[last[sessions[row]]] for row in rows]
        return cls(chosen, source)

    @property
    def is_whole(self) -> bool:
        return len(self.chosen) == len(self.source)

    @property
    def is_shared(self) -> bool:
        """Whether a row gets the values of another row."""
        return bool(len(self.chosen) < (self.source >= 0).sum())

    def select(self, tensor: Any) -> Any:
        """The chosen rows of a tensor."""
        import torch

        return tensor if self.is_whole else tensor[torch.from_numpy(self.chosen)]

    def spread(self, values: Any, mask: Any) -> Any:
        """The values of all rows, [B, T]: 0 for a padding row; another trajectory of a session has the value of its last."""
        import torch

        if self.is_whole:
            return values
        whole = torch.zeros(mask.shape, dtype=values.dtype)
        whole[torch.from_numpy(self.chosen)] = values
        is_own = np.zeros(len(mask), bool)
        is_own[self.chosen] = True
        shared = torch.from_numpy(np.flatnonzero(~is_own & (self.source >= 0)))
        if len(shared):
            # The value of the first token that counts.
            first = values[torch.arange(len(values)), (self.select(mask) != 0).int().argmax(1)]
            whole[shared] = first[torch.from_numpy(self.source)[shared]].unsqueeze(-1) * (mask[shared] != 0)
        return whole

    def spread_responses(self, values: Any) -> Any:
        """As `spread`, for one value per response, [B]."""
        import torch

        return torch.cat([values, values.new_zeros(1)])[torch.from_numpy(self.source)]
