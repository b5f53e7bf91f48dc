"""The prefix cache: KV by token prefix, least recently used out first, every entry marked with the weights that made
it.

As SGLang's radix cache with page size 1: a prefix that is already there keeps its old KV, so an update without a
flush leaves stale entries that later requests reuse (mem_cache/radix_cache.py @0.5.23).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False)
class _Node:
    parent: _Node | None = None
    token: int = -1
    kv: np.ndarray | None = None
    state_id: str = ""
    used: int = 0
    pins: int = 0
    children: dict[int, _Node] = field(default_factory=dict)

    def __lt__(self, other: _Node) -> bool:
        """Goes first. No two leaves were last used at once: a use marks one path, which ends in one leaf."""
        return self.used < other.used


def _evictable(node: _Node) -> bool:
    return not node.children and not node.pins and node.parent is not None


@dataclass(frozen=True)
class Pin:
    """A prefix in use by a request: it is not evicted until `PrefixCache.unpin`."""

    node: _Node
    length: int


class PrefixCache:
    """KV of at most `max_tokens` tokens. `extra_key` separates namespaces (LoRA, cache salt)."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.size = 0
        self._roots: dict[str | None, _Node] = {}
        self._clock = 0

    def match(self, tokens: Sequence[int], extra_key: str | None = None) -> tuple[int, np.ndarray | None, list[str]]:
        """The longest cached prefix of `tokens`: (n, KV [n, ...] or None when n is 0, state id per token).

        A request matches at most all but its last token: the caller cuts.
        """
        nodes = self._walk(tokens, extra_key)
        if not nodes:
            return 0, None, []
        self._use(nodes)
        return len(nodes), np.stack([node.kv for node in nodes if node.kv is not None]), [n.state_id for n in nodes]

    def insert(
        self, tokens: Sequence[int], kv: np.ndarray, state_ids: Sequence[str], extra_key: str | None = None
    ) -> int:
        """Add the KV of `tokens` ([n, ...], one state id each). Returns how many were there before: those keep their
        old KV.

        ValueError when the lengths differ. Stops early when nothing more can be evicted.
        """
        if not len(tokens) == len(kv) == len(state_ids):
            raise ValueError(f"{len(tokens)} tokens, {len(kv)} KV entries, {len(state_ids)} state ids")
        nodes = self._walk(tokens, extra_key)
        known = len(nodes)
        node = nodes[-1] if nodes else self._roots.setdefault(extra_key, _Node())
        self._use(nodes)
        held = self._pin(node)
        self.evict(self.size + len(tokens) - known - self.max_tokens)
        self.unpin(held)
        last = known + max(0, self.max_tokens - self.size)
        self._clock += 1
        for token, entry, state_id in zip(tokens[known:last], kv[known:last], state_ids[known:last], strict=True):
            child = _Node(node, token, np.array(entry), state_id, self._clock)
            node.children[token] = child
            self.size += 1
            node = child
        return known

    def pin(self, tokens: Sequence[int], extra_key: str | None = None) -> Pin | None:
        """Hold the cached prefix of `tokens`; None when nothing is cached."""
        nodes = self._walk(tokens, extra_key)
        return self._pin(nodes[-1]) if nodes else None

    def unpin(self, pin: Pin | None) -> None:
        """Let go."""
        node = pin.node if pin else None
        while node is not None:
            node.pins -= 1
            node = node.parent

    def evict(self, tokens: int) -> int:
        """Drop at least `tokens` least recently used, unpinned leaves if there are so many. Returns how many went."""
        leaves = [node for node in self._nodes() if _evictable(node)]
        heapq.heapify(leaves)
        gone = 0
        while leaves and gone < tokens:
            leaf = heapq.heappop(leaves)
            parent = leaf.parent
            assert parent is not None
            del parent.children[leaf.token]
            gone += 1
            if _evictable(parent):
                heapq.heappush(leaves, parent)
        self.size -= gone
        return gone

    @property
    def pinned(self) -> int:
        """How many tokens cannot be evicted now."""
        return sum(1 for node in self._nodes() if node.pins)

    def flush(self) -> None:
        """Forget everything."""
        self._roots.clear()
        self.size = 0

    def state_ids(self) -> set[str]:
        """The weights that made what is cached."""
        return {node.state_id for node in self._nodes()}

    def _walk(self, tokens: Sequence[int], extra_key: str | None) -> list[_Node]:
        node = self._roots.get(extra_key)
        out: list[_Node] = []
        for token in tokens:
            node = node.children.get(token) if node else None
            if node is None:
                break
            out.append(node)
        return out

    def _nodes(self) -> list[_Node]:
        out: list[_Node] = []
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.parent is not None:
                out.append(node)
        return out

    def _use(self, nodes: Sequence[_Node]) -> None:
        self._clock += 1
        for node in nodes:
            node.used = self._clock

    def _pin(self, node: _Node) -> Pin:
        length, walk = 0, node
        while True:
            walk.pins += 1
            if walk.parent is None:
                return Pin(node, length)
            walk, length = walk.parent, length + 1
