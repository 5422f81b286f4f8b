//! Compressed forms of token values: one value for all tokens of a response, or the rows of an array [B, T].

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::large::{Large, Plain, in_large_pages};
use super::{Buffer, BufferOwner, FloatBuffer, Layout};

/// Token values in a compressed form. They are expanded into separate memory the first time that they are read token by token.
struct Kept<T: Plain> {
    layout: Arc<Layout>,
    form: Form<T>,
    all: OnceLock<Vec<T>>,
}

enum Form<T: Plain> {
    /// One value for all tokens of a response.
    ByResponse(Vec<f64>, fn(f64) -> T),
    /// The rows of an array [B, T], 0 where no token counts.
    Rows(Large<T>),
}

impl<T: Plain> Kept<T> {
    fn buffer(layout: &Arc<Layout>, form: Form<T>) -> Buffer<T> {
        Buffer::new(Kept {
            layout: layout.clone(),
            form,
            all: OnceLock::new(),
        })
    }
}

impl<T: Plain> BufferOwner<T> for Kept<T> {
    fn as_slice(&self) -> &[T] {
        self.all.get_or_init(|| {
            let (layout, width) = (&self.layout, self.layout.width());
            let mut all = vec![T::default(); layout.tokens()];
            in_large_pages(&mut all);
            for response in 0..layout.responses() {
                for (tokens, columns) in layout.token_runs(response) {
                    match &self.form {
                        Form::ByResponse(values, narrow) => {
                            all[tokens].fill(narrow(values[response]));
                        }
                        Form::Rows(rows) => {
                            all[tokens].copy_from_slice(&rows[response * width..][columns]);
                        }
                    }
                }
            }
            all
        })
    }

    fn count(&self) -> usize {
        self.layout.tokens()
    }
}

impl<T: Plain> Buffer<T> {
    fn kept(&self) -> Option<&Kept<T>> {
        let owner: &dyn Any = &*self.0;
        owner.downcast_ref()
    }

    fn form(&self) -> Option<&Form<T>> {
        self.kept().map(|kept| &kept.form)
    }

    /// The same values, expanded if their form belongs to another layout.
    fn in_layout(self, layout: &Arc<Layout>) -> Self {
        let is_of_other = |kept: &Kept<T>| !Arc::ptr_eq(&kept.layout, layout);
        if self.kept().is_some_and(is_of_other) {
            return self.to_vec().into();
        }
        self
    }

    /// The rows of an array [B, T], if these values have that form and no other buffer shares them.
    pub(super) fn into_rows(self) -> Result<Large<T>, Self> {
        if !matches!(self.form(), Some(Form::Rows(_))) || Arc::strong_count(&self.0) > 1 {
            return Err(self);
        }
        let owner: Arc<dyn Any + Send + Sync> = self.0;
        match owner.downcast().map(Arc::into_inner) {
            Ok(Some(Kept {
                form: Form::Rows(rows),
                ..
            })) => Ok(rows),
            _ => unreachable!("there are rows, and this is their only owner"),
        }
    }
}

impl FloatBuffer {
    /// Token values with one value for all tokens of each response.
    pub(crate) fn uniform(layout: &Arc<Layout>, values: Vec<f64>, is_f64: bool) -> Self {
        if is_f64 {
            Kept::buffer(layout, Form::ByResponse(values, |value| value)).into()
        } else {
            Kept::buffer(layout, Form::ByResponse(values, |value| value as f32)).into()
        }
    }

    /// Token values in the rows of an array [B, T], 0 where no token counts.
    pub(crate) fn of_rows(layout: &Arc<Layout>, rows: Large<f32>) -> Self {
        Kept::buffer(layout, Form::Rows(rows)).into()
    }

    /// The same values for another layout with as many cells.
    pub(super) fn in_layout(self, layout: &Arc<Layout>) -> Self {
        match self {
            FloatBuffer::F32(values) => values.in_layout(layout).into(),
            FloatBuffer::F64(values) => values.in_layout(layout).into(),
        }
    }

    /// The rows of an array [B, T], if these token values have that form.
    pub(super) fn rows(&self) -> Option<&[f32]> {
        match self {
            FloatBuffer::F32(values) => match values.form()? {
                Form::Rows(rows) => Some(rows),
                Form::ByResponse(..) => None,
            },
            FloatBuffer::F64(_) => None,
        }
    }

    /// The value of each response, widened to f64, if all tokens of each response are known to have the same value.
    pub(super) fn by_response(&self) -> Option<&[f64]> {
        fn of<T: Plain>(values: &Buffer<T>) -> Option<&[f64]> {
            match values.form()? {
                Form::ByResponse(values, _) => Some(values),
                Form::Rows(_) => None,
            }
        }
        match self {
            FloatBuffer::F32(values) => of(values),
            FloatBuffer::F64(values) => of(values),
        }
    }
}
