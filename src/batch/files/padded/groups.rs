//! The group of each response of a padded file: whole numbers, texts, or places in a list of names.

use super::columns::Padded;
use super::element::Element;
use super::npy;
use super::tensors::Tensor;
use crate::batch::GroupId;
use crate::batch::files::ReadError;

impl Padded<'_> {
    /// The group of each response.
    pub(super) fn groups(&mut self, tensor: &Tensor) -> Result<Vec<GroupId>, ReadError> {
        const EXPECTED: &str = "whole numbers or texts [B], one for each response";
        if !matches!(tensor.shape.as_slice(), [_] | [_, 1]) {
            return Err(self.wrong(tensor, tensor.describe(), EXPECTED));
        }
        if matches!(tensor.element, Element::Text(_)) {
            let texts = self.reader.texts(tensor)?;
            return Ok(texts.into_iter().map(GroupId::from).collect());
        }
        if !tensor.element.is_number() {
            let name = tensor.element.name();
            let hint = match npy::UNREAD_TEXTS
                .iter()
                .any(|texts| name.starts_with(texts))
            {
                true => " (numpy: `np.array(ids).astype(str)` makes texts of them)",
                false => "",
            };
            return Err(self.wrong(tensor, tensor.describe(), format!("{EXPECTED}{hint}")));
        }
        let mut numbers = Vec::new();
        let mut fraction = None;
        self.reader.pieces(tensor, |bytes| {
            if let Err(value) = tensor.element.push_whole(bytes, &mut numbers) {
                fraction.get_or_insert(value);
            }
            Ok(())
        })?;
        if let Some(value) = fraction {
            return Err(self.wrong(
                tensor,
                format!("{value} at response {}", numbers.len()),
                EXPECTED,
            ));
        }
        let names = self
            .saved
            .as_ref()
            .and_then(|saved| saved.group_names.as_ref());
        let ids = numbers.iter().map(|&number| match names {
            Some(names) => usize::try_from(number)
                .ok()
                .and_then(|at| names.get(at))
                .cloned(),
            None => Some(match i64::try_from(number) {
                Ok(number) => GroupId::Number(number),
                Err(_) => number.to_string().into(),
            }),
        });
        let ids: Option<Vec<GroupId>> = ids.collect();
        ids.ok_or_else(|| {
            let names = names.map_or(0, Vec::len);
            self.wrong(
                tensor,
                "a number beyond its names".to_string(),
                format!("one of the {names} names in the header"),
            )
        })
    }
}
