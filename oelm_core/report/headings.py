"""Headings of reports in English and Chinese. What the audit says stays English; only headings are translated."""

from __future__ import annotations

from oelm_core.errors import BadInput

LANGUAGES = ("en", "zh")

ZH = {
    "Comparison": "对比",
    "Question": "研究问题",
    "Recipe": "实验配置",
    "Results": "结果",
    "More measures": "其他指标",
    "Parameters": "参数量",
    "Timing": "计时",
    "Validation curve": "验证曲线",
    "Curves": "曲线",
    "Across data sets": "跨数据集对比",
    "Ablation": "消融实验",
    "Significance": "显著性",
    "Fairness": "公平性审查",
    "Published figures": "已发表数据审查",
    "How to reproduce": "复现方法",
    "Footnotes": "脚注",
    "Arm": "实验",
    "Method": "方法",
    "Data set": "数据集",
    "Baseline": "基线",
    "Gap": "差距",
    "95 % interval": "95 % 置信区间",
    "Kept": "保留比例",
    "Target": "目标",
    "Seeds": "种子数",
    "Published": "已发表",
    "Final": "最终",
    "Loss": "损失",
    "F1": "F1",
    "Steps to 80 %": "达到 80 % 步数",
    "Steps to 90 %": "达到 90 % 步数",
    "Time to 80 %": "达到 80 % 用时",
    "Time to 90 %": "达到 90 % 用时",
    "Total": "总参数",
    "Trainable": "可训练",
    "Frozen": "冻结",
    "Frozen share": "冻结比例",
    "Saved": "节省",
    "Checkpoint": "检查点",
    "Per step": "每步时间",
    "Median": "中位数",
    "p95": "p95",
    "Tokens/s": "词元/秒",
    "Total time": "总用时",
    "Peak memory": "峰值内存",
    "Runs": "运行次数",
    "Step": "步数",
    "Test": "检验",
    "n": "n",
    "p": "p",
    "In words": "说明",
    "Grade": "等级",
    "What": "项目",
    "Arms": "涉及实验",
    "Why": "原因",
    "Settle with": "对照实验",
    "Source": "来源",
    "Setting": "设置",
    "Mean": "平均",
    "Q/K start": "Q/K 初始化",
    "Row norm": "行范数",
    "breaks": "破坏对比",
    "confounds": "混淆因素",
    "note": "注意",
    "met": "达成",
    "missed": "未达成",
    "unknown": "未知",
    "no target": "无目标",
    "Same in all arms": "各实验相同",
    "No differences found.": "未发现差异。",
    "Commands": "命令",
    "Code commit": "代码提交",
    "Versions": "版本",
    "Hardware": "硬件",
    "accuracy": "准确率",
    "perplexity": "困惑度",
    "loss": "损失",
    "f1": "F1",
    "matthews": "Matthews 相关系数",
    "train_loss": "训练损失",
    "validation": "验证",
    "training": "训练",
}


class Words:
    """`words("Results")` in the chosen language; a heading without a translation stays as it is."""

    def __init__(self, lang: str = "en") -> None:
        if lang not in LANGUAGES:
            raise BadInput(f"--lang {lang}: write {' or '.join(LANGUAGES)}.")
        self.lang = lang

    def __call__(self, text: str) -> str:
        return ZH.get(text, text) if self.lang == "zh" else text
