"""CSV: one row an arm, every number in it, in plain units (fractions, seconds, bytes)."""

from __future__ import annotations

import csv
import io
from typing import Any

from oelm_core.compare.comparison import Arm, Comparison, Group, Measure

_MEASURES = (
    *("final", "loss", "f1", "matthews", "best_step", "reached_80_step", "reached_80_seconds", "reached_90_step"),
    *("reached_90_seconds", "total", "trainable", "frozen", "step_time", "step_time_median", "step_time_p95"),
    *("tokens_per_s", "seconds", "training_seconds", "validation_seconds", "memory", "checkpoint_bytes"),
)
_ZH = {
    "family": "模型族",
    "dataset": "数据集",
    "model": "模型",
    "arm": "实验",
    "preset": "预设",
    "method": "方法",
    "baseline": "基线",
    "seeds": "种子",
    "metric": "指标",
    "direction": "方向",
    "mean": "均值",
    "std": "标准差",
    "n": "n",
    "delta": "差距",
    "delta_kind": "差距类型",
    "interval_low": "区间下限",
    "interval_high": "区间上限",
    "p": "p",
    "retention": "保留比例",
    "verdict": "目标判定",
    "parameter_saving": "参数节省",
    "final": "最终值",
    "loss": "损失",
    "f1": "F1",
    "matthews": "Matthews",
    "best_step": "最佳步数",
    "total": "总参数",
    "trainable": "可训练参数",
    "frozen": "冻结参数",
    "step_time": "每步时间",
    "step_time_median": "每步时间中位数",
    "step_time_p95": "每步时间p95",
    "tokens_per_s": "词元每秒",
    "seconds": "总用时",
    "memory": "峰值内存",
    "training_seconds": "训练用时",
    "validation_seconds": "验证用时",
    "checkpoint_bytes": "检查点字节",
    "reached_80_step": "达到80%步数",
    "reached_80_seconds": "达到80%用时",
    "reached_90_step": "达到90%步数",
    "reached_90_seconds": "达到90%用时",
    "published": "已发表",
    "published_source": "来源",
    "breaks": "破坏对比",
    "confounds": "混淆因素",
    "runs": "运行",
}


def render_csv(comparison: Comparison, lang: str = "en") -> str:
    """Columns are the same for every comparison; what is unknown is empty."""
    rows = [_row(group, arm) for group in comparison.groups for arm in group.arms]
    out = io.StringIO()
    names = list(rows[0]) if rows else []
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_ZH.get(name, name) if lang == "zh" else name for name in names])
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in names])
    return out.getvalue()


def _row(group: Group, arm: Arm) -> dict[str, Any]:
    pair = group.pair(arm.id)
    interval = pair.interval if pair and pair.interval else (None, None)
    metric: Measure | None = arm.metric
    published = arm.published or {}
    grades = [finding.grade for finding in group.findings_about(arm.id)]
    return {
        "family": group.family,
        "dataset": group.dataset,
        "model": group.model,
        "arm": arm.id,
        "preset": arm.preset,
        "method": arm.method,
        "baseline": pair.baseline if pair else None,
        "seeds": " ".join(map(str, arm.seeds)),
        "metric": group.metric,
        "direction": group.direction,
        "mean": metric.mean if metric else None,
        "std": metric.std if metric else None,
        "n": metric.n if metric else 0,
        "delta": pair.delta if pair else None,
        "delta_kind": pair.kind if pair else None,
        "interval_low": interval[0],
        "interval_high": interval[1],
        "p": pair.p if pair else None,
        "retention": pair.retention if pair else None,
        "verdict": pair.verdict if pair else None,
        "parameter_saving": pair.parameter_saving if pair else None,
        **{name: arm.mean(name) for name in _MEASURES},
        "published": published.get(group.metric),
        "published_source": published.get("source"),
        "breaks": grades.count("breaks"),
        "confounds": grades.count("confounds"),
        "runs": " ".join(arm.runs),
    }
