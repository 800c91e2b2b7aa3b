"""Lines of a log that speak to whoever reads it: to a model that is to obey them, not to people.

In: a line. Out: whether it does, in any of a dozen languages, also where the words are encoded, spaced out or written
in look-alike letters. Such a line proves nothing. This is a net, not the wall: what a model says must stand up to the
other checks whether or not a line was seen for what it is.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

_LONGEST = 2_000
_SPOKEN = re.compile(
    # English
    r"(?:ignore|disregard|forget|override|bypass)\W+(?:\w+\W+){0,5}(?:instruction|prompt|rule|above|previous|prior|"
    r"context|"
    r"message|system|guideline|polic)|system[ _-]?prompt\b|(?:your|these|new|following|hidden|"
    r"initial)\W+(?:\w+\W+)?instructions?\b|"
    r"you are (?:now |a |an |the )|you must (?:answer|respond|reply|say|label|classify|report)|"
    r"as an ai\b|(?:as|are) an? (?:\w+ )?language model|\bllms?\b.{0,40}(?:must|should|shall|answer|report)|"
    r"\bchat ?gpt|\bassistant\s*[:>]|"
    r"\b(?:note|message|attention|hint|instructions?) (?:to|for) (?:the |any |all )?(?:ai|model|assistant|llm|reader|"
    r"analy|"
    r"agent|diagnos|classif)|"
    r"\b(?:answer|respond|reply|output|print|return|say|label|classify|report|conclude)(?: it| this| that)?(?: only|"
    r" exactly|"
    r" just)?\W+(?:with|as|the (?:label|following|error|root|type|prompt|word|answer)|label|json|root.?cause)\b|"
    r"\b(?:correct|right|true|final|real|expected) (?:label|answer|diagnosis|error.?type|verdict|classification)\b|"
    r"[\"']?(?:label|error_type|attribution|read_more|root_cause)[\"']?\s*[:=]\s*[\"']?\w|"
    r"(?:call|use|invoke|run|execute) the (?:tool|function|grep|window|shell)|tool_?calls?\b|function_?call|"
    r"(?:reveal|repeat|print|leak|show|output) (?:your|the) (?:\w+ )?(?:prompt|instructions|rules)|"
    r"(?:drop|filter|suppress|discard|delete) (?:all|every|each) (?:line|log|message)|(?:filter|write|"
    r"emit) (?:a )?rule|"
    # German, Dutch
    r"ignorier|missachte|vergiss (?:alle|die|deine|vorherige)|anweisung|antworte\b|du bist (?:jetzt|nun|ein)|"
    r"richtige antwort|negeer|vergeet (?:alle|de)|instructies|antwoord (?:met|alleen)|"
    # French, Spanish, Portuguese, Italian
    r"ignore[zrs]? (?:toutes|les|tout|todas|as|le)|ignora (?:todas|las|tutte|le|todo)|oublie[zr]? |olvida |esque[çc]a |"
    r"dimentica |instrucciones|instru[çc][õo]es|istruzioni|consignes|r[ée]pond(?:s|ez) |responde |responda |rispondi |"
    r"tu es (?:maintenant|un)|eres (?:ahora|un)|voc[êe] [ée] |sei (?:ora|un) |respuesta correcta|bonne r[ée]ponse|"
    # Turkish, Polish, Indonesian, Vietnamese
    r"talimat|yok say|cevap ver|zignoruj|instrukcj|odpowiedz |abaikan|instruksi|b[ỏo] qua|"
    # Russian, Ukrainian
    r"игнорир|забуд|инструкци|ответь|отвечай|ты теперь|системн\w+ (?:подсказ|промпт)|ігнору|"
    # Chinese, Japanese, Korean
    r"忽略|无视|無視|忘记|忘掉|指令|提示词|提示詞|系统提示|回答|请输出|你现在是|你是一个|答案是|指示|プロンプト|答えて|"
    r"回答して|あなたは|무시|지시|프롬프트|대답|답변|당신은|"
    # Arabic, Hebrew, Persian, Hindi, Thai
    r"تجاهل|تعليمات|أجب|انت الآن|נא להתעלם|התעלם|הוראות|ענה|نادیده|دستور|अनदेखा|निर्देश|उत्तर दें|जवाब|ละเว้น|คำสั่ง|"
    r"ตอบ",
    re.IGNORECASE,
)
_LETTERS = str.maketrans("аеорсухіѕјԁԛԝɡοεαρτυικν0134578@$", "aeopcyxisjdqwgoeaptuikvoleastbas")
_SPACED = re.compile(r"(?:\b\w[\s.\-_*]{1,3}){6,}\w\b")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :]?){10,}")
_ESCAPED = re.compile(r"\\u\{?([0-9a-fA-F]{2,6})\}?|\\x([0-9a-fA-F]{2})|&#(\d{2,7});|&#x([0-9a-fA-F]{2,6});")


@lru_cache(maxsize=20_000)
def addresses_the_reader(text: str) -> bool:
    """Whether a line speaks to its reader."""
    return any(_SPOKEN.search(reading) for reading in _readings(text[:_LONGEST]))


def _readings(text: str) -> Iterator[str]:
    """The line, and what it may say when read otherwise."""
    yield text
    plain = unicodedata.normalize("NFKC", text)
    plain = "".join(char for char in plain if unicodedata.category(char) not in ("Cf", "Mn"))
    yield plain
    tagged = "".join(chr(ord(char) - 0xE0000) for char in text if 0xE0020 <= ord(char) <= 0xE007E)
    if tagged:
        yield tagged
    yield plain.lower().translate(_LETTERS)
    for match in _SPACED.finditer(plain):
        yield _joined(match[0])
    unescaped = _ESCAPED.sub(_character, plain)
    if "%" in unescaped:
        unescaped = unquote(unescaped, errors="replace")
    if unescaped != plain:
        yield unescaped
    yield codecs.encode(plain, "rot13")
    yield plain[::-1]
    for match in _BASE64.finditer(plain):
        run = match[0].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            yield base64.b64decode(run + "=" * (-len(run) % 4)).decode("utf-8", errors="replace")
        except (binascii.Error, ValueError):
            continue
    for match in _HEX.finditer(plain):
        try:
            yield bytes.fromhex(match[0].replace(":", " ")).decode("utf-8", errors="replace")
        except ValueError:
            continue


def _joined(spaced: str) -> str:
    """`i g n o r e   a l l` as `ignore all`: single gaps part letters, wider ones words."""
    return " ".join(re.sub(r"[\s.\-_*]", "", word) for word in re.split(r"\s{2,}", spaced))


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2] or match[4] or "0", 16) if match[3] is None else int(match[3])
    return chr(code) if code < 0x110000 else ""
