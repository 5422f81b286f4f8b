//! Finds the part of a completion that is the model's own answer to the prompt: without special tokens, later turns, thoughts,
//! and the calls and replies of tools.

use memchr::memchr3_iter;

use super::text::patterns;

/// The authors whose names begin a line, as in `### Instruction:`.
const AUTHORS: &str = "Human|User|USER|HUMAN|Assistant|ASSISTANT|Instruction";

/// The roles that are lines of their own where a trainer decoded several turns without their special tokens.
const ROLES: &str = "user|assistant|tool";

patterns! {
    TOKEN = tokens().join("|");
    /// Tokens that mark a part of a turn, and do not begin a turn.
    MARK = "(?i)(?:begin|end)_of_(?:solution|answer|box|thought)|thinking";
    /// The word after a token that opens a turn or a channel: the turn's author or the channel's name.
    HEAD = {
        let names = "assistant|model|ai|user|human|system|developer|tool|ipython|function|functions|observation|environment";
        format!(r"^\s*({names}|analysis|commentary|thought|final)\b")
    };
    /// The start of a user's turn that an environment wrote.
    ENVIRONMENT = format!(r"(?i)^\s*<(?:{TOOLS})>");
}

/// The names of tags around the calls and replies of tools.
const TOOLS: &str = "tool_(?:call|response|result|output)s?|function_(?:call|result)s?|information|interpreter|observation";

/// Returns the patterns of the special tokens of Llama, Qwen (ChatML), Mistral, Gemma, Phi, DeepSeek, GLM, Kimi, Granite, EXAONE,
/// gpt-oss and other models.
pub(super) fn tokens() -> [String; 12] {
    let names = "bos|eos|pad|unk|sep|eot|eod|eoa|sop|eop|BOS|EOS|PAD|UNK";
    let squares = "PAD|EOS|BOS|SEP|CLS|UNK|gMASK|/?INST|TOOL_CALLS|/?TOOL_RESULTS|/?AVAILABLE_TOOLS|/?SYSTEM_PROMPT";
    [
        r"<[|｜][A-Za-z][\w▁-]{2,40}[|｜]>",
        r"<\|?(?:turn|channel)\|?>",
        r"\[\|/?[a-z]{4,12}\|\]",
        r"</?s>|<(?:start|end)_of_turn>",
        &format!("<(?:seed:)?(?:{names})(?:_TOKEN)?>"),
        r"<(?:extra_id_|SPECIAL_|reserved_|unused)\d+>",
        "<</?SYS>>",
        r"\[e~\[",
        r"\]~!?b[\[\]]",
        &format!(r"\[(?:{squares})\]"),
        &format!(r"\n(?:#+ ?)?(?:{AUTHORS}):"),
        &format!(r"(?:^|\n)(?:{ROLES})\n"),
    ]
    .map(str::to_string)
}

/// The names of tags around thoughts.
const THOUGHTS: &str = "think|thinking|thoughts?|reasoning|seed:think|scratchpad";

/// The names of tokens that open a turn.
const OPEN: &str =
    "im_start start_header_id header_start start_of_turn start_of_role start turn ~b";

/// Parts of the names of tokens that neither begin nor end a turn.
const INSIDE: &str =
    "header role message im_sep middle begin_of bos channel start_response vision image box_";

#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Own,
    Tool,
    /// The turn of a user or the system, a channel of thoughts, or the text after an answer.
    Other,
}

/// Returns whose turn a token begins, given the word `head` after the token; `None` if the current turn goes on. A token that
/// ends a turn begins [`Turn::Other`], but only once the model has said something, because such tokens are padding before that.
fn begun(token: &str, head: &str, behind: &str, has_said: bool, is_own: bool) -> Option<Turn> {
    let lower = token.to_lowercase().replace('▁', "_");
    let name = lower.trim_matches(['<', '>', '|', '｜', '[', ']']);
    let has = |parts: &str| parts.split(' ').any(|part| name.contains(part));
    let is_open = OPEN.split(' ').any(|open| open == name) && !token.ends_with("turn|>");
    match head {
        "assistant" | "model" | "ai" | "final" if is_open || name == "channel" => Some(Turn::Own),
        "analysis" | "commentary" | "thought" if name == "channel" => Some(Turn::Other),
        "user" if is_open && ENVIRONMENT.is_match(behind) => Some(Turn::Tool),
        "user" | "human" | "system" | "developer" if is_open => Some(Turn::Other),
        // `start` is excluded, because gpt-oss writes the name of a tool after `start`.
        "" if is_open && name != "start" => Some(Turn::Other),
        // The environment's user does not end the answer.
        _ if token == "\nuser\n" && is_own => Some(Turn::Tool),
        _ if is_open => Some(Turn::Tool),
        _ if token == "<channel|>" => Some(Turn::Own),
        _ if has(INSIDE) => None,
        _ if has("tool python_tag observation function") => {
            let is_end = name.contains("end") || name.starts_with('/');
            Some(if is_end { Turn::Own } else { Turn::Tool })
        }
        _ if name.ends_with("assistant:") && is_own => None,
        _ if has("assistant chatbot /inst") => Some(Turn::Own),
        _ if has("user human inst sys") => Some(Turn::Other),
        _ if name == "s" || !has_said => None,
        _ => Some(Turn::Other),
    }
}

/// Returns the model's turns: all of them if the text is a dialogue with an environment, otherwise those before the first turn of
/// another author, because a base model that runs on writes the next question and its answer. A tool's turn never ends the turns.
pub(super) fn turns(text: &str, is_dialogue: bool) -> Vec<String> {
    let tokens = TOKEN.find_iter(text);
    let tokens = tokens.filter(|token| !MARK.is_match(token.as_str()));
    let (mut turns, mut said) = (Vec::new(), String::new());
    let (mut turn, mut has_said, mut is_after_tool, mut at) = (Turn::Own, false, false, 0);
    for token in tokens {
        if turn == Turn::Own {
            let words = &text[at..token.start()];
            has_said |= !words.trim().is_empty();
            said += words;
        }
        at = token.end();
        let head = HEAD.captures(&text[at..]).and_then(|found| found.get(1));
        let behind = &text[at + head.map_or(0, |head| head.end())..];
        let name = head.map_or("", |head| head.as_str());
        let is_own = turn == Turn::Own;
        let Some(begun) = begun(token.as_str(), name, behind, has_said, is_own) else {
            continue;
        };
        if begun == Turn::Own && has_said {
            turns.push(std::mem::take(&mut said));
            if !is_after_tool && !is_dialogue {
                return turns;
            }
            has_said = false;
        }
        let may_go_on = begun == Turn::Other && head.is_none();
        is_after_tool = begun == Turn::Tool || is_after_tool && may_go_on;
        (turn, at) = (begun, text.len() - behind.len());
    }
    if turn == Turn::Own {
        said += &text[at..];
    }
    turns.push(said);
    turns
}

/// Returns the last turn that is not blank.
pub(super) fn last(turns: Vec<String>) -> String {
    let mut turns = turns.into_iter().rev();
    turns
        .find(|turn| !turn.trim().is_empty())
        .unwrap_or_default()
}

/// Returns whether a text may contain special tokens or tags. This quick test comes first, because most texts have neither.
pub(super) fn has_tags(text: &str) -> bool {
    patterns!(START = format!("^(?:analysis|{AUTHORS}|{ROLES})"));
    let bytes = text.as_bytes();
    let begins_tag = |at: usize| match &bytes[at..] {
        [b'<', next, ..] => next.is_ascii_alphabetic() || b"/| \xef".contains(next),
        [b'[', next, ..] => next.is_ascii_alphabetic() || b"/|".contains(next),
        [b']', b'~', ..] | [b'`', b'`', ..] | [0xe2, 0x97, ..] | [b'\n', b'#', ..] => true,
        [b'\n', ..] => START.is_match(&text[at + 1..]),
        _ => false,
    };
    let mut starts =
        memchr3_iter(b'<', b'[', b'\n', bytes).chain(memchr3_iter(b']', b'`', 0xe2, bytes));
    START.is_match(text) || starts.any(begins_tag)
}

/// Returns the model's own words, without thoughts and tools; `None` if thoughts begin in the text, but none end.
pub(super) fn own(text: &str) -> Option<String> {
    patterns! {
        /// The end of thoughts. `analysis .. assistantfinal` is from gpt-oss without its special tokens: only the channels' names
        /// remain.
        END = {
            let others = r"<\|end_of_thought\|>|<\|END_THINKING\|>|◁/think▷|\[/THINK\]";
            format!(r"(?i:</(?:{THOUGHTS})>|{others})|^analysis(?s:.*)assistantfinal")
        };
        BEGIN = {
            let others = r"<\|begin_of_thought\|>|<\|START_THINKING\|>|◁think▷|\[THINK\]";
            format!(r"(?i)<(?:{THOUGHTS})(?:\s[^<>]*)?>|{others}")
        };
        TOOL = {
            let code = "output|python|py|tool_code|tool_outputs?|stdout";
            format!(r"(?is)<(?:{TOOLS})>.*?(?:</(?:{TOOLS})>|$)|```(?:{code})\s*\n.*?(?:```|$)")
        };
    }
    let said = last(turns(text, false));
    let end = END.find_iter(&said).last();
    let from = end.map_or(0, |end| end.end());
    let open = BEGIN.find_at(&said, from);
    if open.is_some() && end.is_none() {
        return None;
    }
    // A thought that begins after the last end of a thought extends to the end of the text.
    let own = from..open.map_or(said.len(), |open| open.start());
    Some(TOOL.replace_all(&said[own], " ").into_owned())
}
