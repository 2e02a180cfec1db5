"""Varied texts for the tests of the encoders, and for the check against torch. Made here, the same every time."""

import random

_SENTENCES = (
    "The board approved vendor B for the VPN rollout on 27 March.",
    "Please do NOT restart db-primary-02 before the backup has finished!",
    "Ticket #4711: login fails with HTTP 503 after the certificate was renewed.",
    "As discussed, the budget falls from 1.2 M€ to 950,000 € in the second half of the year.",
    "Does anybody remember who decided to drop the old on-call rotation, and why?",
    "The naïve approach — café-style pairing — worked better than we’d feared.",
    "def rotate(key: bytes) -> bytes: return key[1:] + key[:1]",
    "https://wiki.example.org/runbooks/failover?rev=17#step-3",
    "会议决定将项目推迟到六月,由王伟负责。",
    "新しいベンダーは来月から移行を開始します。",
    "이번 분기 예산은 승인되지 않았습니다.",
    "قرر المجلس تأجيل الإطلاق إلى شهر يونيو.",
    "הלקוח ביקש לדחות את הפגישה ליום שלישי.",
    "Решение изменено: поставщик Б заменён на поставщика В.",
    "ที่ประชุมอนุมัติงบประมาณแล้ว",
    "निर्णय अगले सप्ताह लिया जाएगा।",
    "🎉🚀 shipped!! 👩‍👩‍👧‍👦 thanks all 🙏🏽",
    "Straße, İstanbul, ﬁne, Ⅷ, ½, ①, ℃, ﷺ",
)

ODD_TEXTS = (
    "",
    " ",
    " \t\r\n  ",
    ".",
    "a",
    "\0",
    "null\0byte",
    "\ufeffbyte order mark",
    "[CLS] [SEP] [MASK] [PAD] [UNK]",
    "a" * 100,
    "a" * 101,
    "e\u0301 é \u200b\u200d zero width",
    "🙂",
    "漢",
    "مرحبا",
    "\u202eright to left override",
    "-" * 600,
    "word " * 400,
    "x" * 5000,
    "     " * 1000 + "late",
)


def varied_texts(count: int = 200) -> list[str]:
    """The odd texts, then mixtures of 1 to 40 sentences in several scripts."""
    choose = random.Random(20261130)
    texts = list(ODD_TEXTS) + list(_SENTENCES)
    while len(texts) < count:
        sentences = choose.choices(_SENTENCES, k=min(40, int(choose.expovariate(1 / 6)) + 1))
        texts.append(choose.choice((" ", "\n", "\n\n- ")).join(sentences))
    return texts[:count]
