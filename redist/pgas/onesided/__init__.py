"""The global address space: ``get``, ``put`` and ``accumulate`` of any element from any rank."""
