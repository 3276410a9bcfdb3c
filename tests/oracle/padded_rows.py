"""Rows of unequal length as a batch of transformers' Trainer."""
import torch


def collate(rows):
    length = max(len(row["input_ids"]) for row in rows)

    def padded(name, value):
        return torch.tensor([row[name] + [value] * (length - len(row[name])) for row in rows])

    return {"input_ids": padded("input_ids", 0), "labels": padded("labels", -100),
            "attention_mask": torch.tensor([[1] * len(r["input_ids"]) + [0] * (length - len(r["input_ids"])) for r in rows])}
