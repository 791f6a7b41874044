"""Terminal parts that commands share: output, prompts, forms, approvals, reviews."""

__all__: list[str] = []
