"""The model once more, from its equations alone: what every system, mixer and schedule is compared with.

No line of `eqr` is used here. A config is read as plain JSON and weights by their names; the batch is in
front, (rows, tokens, width), neighbours and boxes are found by counting, random numbers are hashed with
Python's integers, and one eager operation follows the other: the way one writes it first.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON, IMPOSSIBLE, THETA = 1e-5, -1e4, 10_000.0
BANK = 1 << 14
BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
"""Rows and columns of a box, by the side of the Sudoku."""


@dataclass(frozen=True)
class Latents:
    """z_H (or the only state) and z_L, each (rows, tokens, width)."""

    answer: Tensor
    scratch: Tensor | None = None

    def detach(self) -> "Latents":
        return Latents(self.answer.detach(), None if self.scratch is None else self.scratch.detach())


class Reference:
    """Runs weights by a config, both plain data."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self.config, self.weights = config, weights
        self.cells, self.width = config["rows"] * config["columns"], config["width"]
        self.first = None if config["sites"] is None else config["sites"]["first"]
        self.live = self.first is not None and config["sites"].get("live", False)
        """Whether only open candidates are carried: the others are what their input is."""
        self._carried: Tensor | float = 1.0
        self.symbols = 1 if self.first is None else config["vocabulary"] - self.first
        self.tokens = config["identity_tokens"] + self.cells * self.symbols
        self.states = 2 if config["recurrence"]["kind"] == "two-level" else 1
        self.bank = torch.randn(BANK, self.width, generator=torch.Generator().manual_seed(0))

    def embed(self, puzzles: Tensor, identities: Tensor | None = None) -> Tensor:
        """x = sqrt(width) * embedding, with learned positions (embedding + position) / sqrt(2) of it."""
        table = self.weights["embedding"]
        rows = []
        for row, puzzle in enumerate(puzzles.tolist()):
            tokens = [table[kind] for token in puzzle for kind in self._kinds(token)]
            if self.live:
                left = self._left(puzzle)
                tokens = [vector if held else 0.0 * vector for vector, held in zip(tokens, left, strict=True)]
            lead = [torch.zeros_like(table[0]) for _ in range(self.config["identity_tokens"])]
            if self.config["identities"] and identities is not None:
                lead[0] = self.weights["identity_table"][identities[row]].to(table)
            rows.append(torch.stack(lead + tokens))
        x = torch.stack(rows)
        if self.config["positions"] == "learned":
            x = (x + self.weights["position"]) / math.sqrt(2)
        return x * math.sqrt(self.width)

    def _kinds(self, token: int) -> list[int]:
        """A cell, or each of its candidates: given, ruled out by another that is given, or open."""
        if self.first is None:
            return [token]
        if token < self.first:
            return [token] * self.symbols
        return [self.first + (token != self.first + symbol) for symbol in range(self.symbols)]

    def _left(self, puzzle: list[int]) -> list[bool]:
        """Which candidates the givens leave: each rules out its cell's others, and itself in its groups."""
        given = {
            cell * self.symbols + token - self.first
            for cell, token in enumerate(puzzle)
            if token >= self.first
        }
        ruled_out = {
            site
            for groups in self._groups().values()
            for members in groups
            if given.intersection(members)
            for site in members
        }
        return [site in given or site not in ruled_out for site in range(self.tokens)]

    def _open(self, x: Tensor) -> Tensor:
        """1 for the sites that hold something and share a group with another that does, (rows, tokens, 1)."""
        held = (x.abs().sum(dim=2) > 0).double()
        company = torch.zeros_like(held)
        for groups in self._groups().values():
            for members in groups:
                company[:, members] += (held[:, members].sum(dim=1, keepdim=True) >= 2).double()
        return (held * (company > 0)).unsqueeze(2).to(x)

    def start(self, x: Tensor, keys: list[int]) -> Latents:
        """A fixed vector, truncated normals of each row's own, or a prediction from the input."""
        state = self._start(x, keys)
        if not self.live:
            return state
        held = (x.abs().sum(dim=2, keepdim=True) > 0).to(x)
        return Latents(state.answer * held, None if state.scratch is None else state.scratch * held)

    def _start(self, x: Tensor, keys: list[int]) -> Latents:
        start = self.config["start"]
        if start["kind"] == "fixed":
            names = ("starter.answer", "starter.scratch")[: self.states]
            return Latents(*(self.weights[name].expand_as(x) for name in names))
        if start["kind"] == "learned":
            hidden = F.silu(F.linear(x, self.weights["starter.into"]))
            return Latents(*F.linear(hidden, self.weights["starter.out"]).chunk(self.states, dim=-1))
        scales = (start["answer"], start["scratch"])[: self.states]
        return Latents(
            *(scale * self._normals(keys, stream).to(x) for stream, scale in enumerate(scales, start=1))
        )

    def _normals(self, keys: list[int], stream: int) -> Tensor:
        """Normals cut at two standard deviations and scaled to have one, by the inverse of their integral."""
        edge, normal = math.erf(2 / math.sqrt(2)), NormalDist()
        bases = [scramble(key + (stream << 40)) for key in keys]
        uniforms = (
            ((scramble(base + place) >> 39) + 0.5) * 2.0**-24
            for base in bases
            for place in range(self.tokens * self.width)
        )
        drawn = [1.13685 * normal.inv_cdf((1 + edge * (2 * u - 1)) / 2) for u in uniforms]
        return torch.tensor(drawn, dtype=torch.float64).view(len(keys), self.tokens, self.width)

    def segment(
        self,
        state: Latents,
        x: Tensor,
        keys: list[int],
        depths: list[int],
        *,
        tracked: int | None = None,
        still: bool = False,
    ) -> Latents:
        """The applications of one segment; only the last `tracked` (None: all) are differentiated."""
        moves, given = self._moves(), x
        if self.live:
            self._carried = self._open(x)
            x, state = x * self._carried, self._masked(state)
        for index, move in enumerate(moves):
            if tracked is not None and index == len(moves) - tracked:
                state = state.detach()
            strayed = (
                None if still else [key + (depth << 20) for key, depth in zip(keys, depths, strict=True)]
            )
            if move == "scratch":
                assert state.scratch is not None
                z = self._apply("stack", state.scratch, state.answer + x, index, 1, strayed)
                state = Latents(state.answer, z)
            else:
                condition = {"answer": state.scratch, "input": x, "alone": torch.zeros_like(x)}[move]
                assert condition is not None
                own = self.config["recurrence"].get("separate", False)
                z = self._apply(
                    "answer_stack" if own else "stack", state.answer, condition, index, 0, strayed
                )
                state = Latents(z, state.scratch)
        if self.live:
            settled = given * (1 - self._carried)
            added = None if state.scratch is None else state.scratch + settled
            state = Latents(state.answer + settled, added)
        return state.detach() if tracked == 0 else state

    def _masked(self, state: Latents) -> Latents:
        scratch = None if state.scratch is None else state.scratch * self._carried
        return Latents(state.answer * self._carried, scratch)

    def _moves(self) -> list[str]:
        recurrence = self.config["recurrence"]
        match recurrence["kind"]:
            case "feedforward":
                return ["input"]
            case "single-state":
                last = "alone" if recurrence["close_alone"] else "input"
                return (["input"] * (recurrence["applications"] - 1) + [last]) * recurrence["cycles"]
        return (["scratch"] * recurrence["scratch"] + ["answer"]) * recurrence["cycles"]

    def _apply(
        self, stack: str, z: Tensor, condition: Tensor, index: int, state: int, keys: list[int] | None
    ) -> Tensor:
        """z <- z + (1 - damping)(f(z + condition) - z) + noise * eps; without keys, f(z + condition)."""
        h = z + condition
        for block in range(self.config["blocks"]):
            name = f"{stack}.blocks.{block}."
            h = self._mix(h, name + self.config["mixer"]["kind"] + ".") * self._carried
            h = norm(h + self._mlp(h, name + "channels."))
        if keys is None:
            return h
        path = self.config["path"]
        h = z + (1 - path["damping"]) * (h - z)
        if not path["noise"]:
            return h
        scale: float | Tensor = path["noise"]
        if path["learned_noise"]:
            learned = self.weights["log_noise"]
            scale = scale * learned[min(state, len(learned) - 1)].exp()
        bases = [scramble(key + index) for key in keys]
        chosen = [[scramble(base + token) % BANK for token in range(self.tokens)] for base in bases]
        return h + scale * self.bank[torch.tensor(chosen)].to(h) * self._carried

    def _mix(self, h: Tensor, name: str) -> Tensor:
        match self.config["mixer"]["kind"]:
            case "tokens":
                turned = h.transpose(1, 2)
                return norm(turned + self._mlp(turned, name)).transpose(1, 2)
            case "attention":
                return norm(h + self._attention(h, name))
            case "neighbours":
                return norm(h + self._mlp(self._with_neighbours(h), name))
            case "groups":
                return norm(h + self._messages(h, name))
            case other:
                raise ValueError(f"no reference for the mixer {other}")

    def _mlp(self, h: Tensor, name: str, family: str = "") -> Tensor:
        """W_down(silu(g) * u); URM's sees the token before as well, by a convolution and another silu."""
        g, u = F.linear(h, self.weights[f"{name}up{family}"]).chunk(2, dim=-1)
        hidden = F.silu(g) * u
        if name + "kernel" in self.weights:
            kernel, bias = self.weights[name + "kernel"], self.weights[name + "bias"]
            before = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1]), dim=1)
            hidden = F.silu(bias + kernel[0] * before + kernel[1] * hidden)
        return F.linear(hidden, self.weights[f"{name}down{family}"])

    def _attention(self, h: Tensor, name: str) -> Tensor:
        heads = self.config["heads"]
        size = self.width // heads
        q, k, v = F.linear(h, self.weights[name + "qkv"]).chunk(3, dim=-1)
        mixed = []
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            turned = [self._turn(part[..., own]) for part in (q, k)]
            scores = torch.softmax(turned[0] @ turned[1].transpose(1, 2) / math.sqrt(size), dim=-1)
            mixed.append(scores @ v[..., own])
        return F.linear(torch.cat(mixed, dim=-1), self.weights[name + "out"])

    def _turn(self, x: Tensor) -> Tensor:
        """Rotate the pairs (i, i + half) of a head by its token's place, or half of it by row and column."""
        places, lead = range(self.tokens), self.config["identity_tokens"]
        match self.config["positions"]:
            case "rotary":
                return rotate(x, list(places))
            case "rotary-2d":
                columns = self.config["columns"]
                rows, sides = zip(
                    *(divmod(p - lead, columns) if p >= lead else (0, 0) for p in places), strict=True
                )
                upper, lower = x.chunk(2, dim=-1)
                return torch.cat((rotate(upper, list(rows)), rotate(lower, list(sides))), dim=-1)
        return x

    def _with_neighbours(self, h: Tensor) -> Tensor:
        """Each cell side by side with those above, below, left and right of it, zeros outside the grid."""
        rows, columns = self.config["rows"], self.config["columns"]
        nothing = torch.zeros_like(h[:, 0])
        seen = []
        for row in range(rows):
            for column in range(columns):
                around = (
                    (row, column),
                    (row - 1, column),
                    (row + 1, column),
                    (row, column - 1),
                    (row, column + 1),
                )
                inside = (0 <= r < rows and 0 <= c < columns for r, c in around)
                arms = [
                    h[:, r * columns + c] if held else nothing
                    for (r, c), held in zip(around, inside, strict=True)
                ]
                seen.append(torch.cat(arms, dim=-1))
        return torch.stack(seen, dim=1)

    def _messages(self, h: Tensor, name: str) -> Tensor:
        """Every group's MLP hears its members' sum over the root of their number, and speaks to them all."""
        heard = [torch.zeros_like(h[:, 0]) for _ in range(self.tokens)]
        for family, groups in self._groups().items():
            for members in groups:
                pooled = torch.stack([h[:, site] for site in members]).sum(0) / math.sqrt(len(members))
                said = self._mlp(pooled, name, f".{family}")
                for site in members:
                    heard[site] = heard[site] + said
        return torch.stack(heard, dim=1)

    def _groups(self) -> dict[str, list[list[int]]]:
        """Rows, columns and boxes of a Sudoku, for each symbol; and the candidates of each cell."""
        side = self.config["rows"]
        high, wide = BOXES[side]
        cells = [(row, column) for row in range(side) for column in range(side)]

        def units(number: Any) -> list[list[int]]:
            return [
                [row * side + column for row, column in cells if number(row, column) == unit]
                for unit in range(side)
            ]

        lines = units(lambda row, _: row) + units(lambda _, column: column)
        boxes = units(lambda row, column: row // high * (side // wide) + column // wide)
        if self.first is None:
            return {"line": lines, "box": boxes}
        own = [[cell * self.symbols + symbol for symbol in range(self.symbols)] for cell in range(self.cells)]
        copied = {
            family: [
                [cell * self.symbols + symbol for cell in unit]
                for unit in found
                for symbol in range(self.symbols)
            ]
            for family, found in (("line", lines), ("box", boxes))
        }
        return {"cell": own, **copied}

    def logits(self, state: Latents) -> Tensor:
        """(rows, cells, vocabulary); a token that is no candidate is as good as impossible."""
        scores = F.linear(state.answer[:, self.config["identity_tokens"] :], self.weights["answer_head"])
        if self.first is None:
            return scores
        if self.live:
            held = state.answer.abs().sum(dim=2, keepdim=True) > 0
            scores = torch.where(held, scores, IMPOSSIBLE)
        scores = scores.reshape(len(scores), self.cells, self.symbols)
        return F.pad(scores, (self.first, 0), value=IMPOSSIBLE)

    def halts(self, state: Latents) -> Tensor:
        """Halt and continue scores (rows, 2), from the first token or, of local mixers, from the mean."""
        local = self.config["mixer"]["kind"] in ("neighbours", "groups")
        seen = state.answer.mean(dim=1) if local else state.answer[:, 0]
        return F.linear(seen, self.weights["halt_head.weight"], self.weights["halt_head.bias"])


def norm(h: Tensor) -> Tensor:
    """Divide by the root mean square of the last axis."""
    return h / torch.sqrt((h * h).mean(dim=-1, keepdim=True) + EPSILON)


def rotate(x: Tensor, places: list[int]) -> Tensor:
    """Turn the plane of channels i and i + half by place / theta^(2 i / width)."""
    width = x.shape[-1]
    a, b = x.chunk(2, dim=-1)
    angles = torch.tensor(
        [[place / THETA ** (2 * i / width) for i in range(width // 2)] for place in places], dtype=x.dtype
    )
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)


def scramble(value: int) -> int:
    """The finaliser of splitmix64 after one step of its counter, without the sign bit."""
    most = (1 << 64) - 1
    value = value * 0x9E3779B97F4A7C15 & most
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & most
    value = (value ^ value >> 27) * 0x94D049BB133111EB & most
    return (value ^ value >> 31) & (most >> 1)
