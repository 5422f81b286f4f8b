//! `:objective` and `:mass`: what recipes optimise, and which responses their signal goes to.

use super::super::session::Session;
use super::curve::size;
use super::recipe::{chosen, title};
use super::{Answered, option, plot};
use crate::report::study::{Mass, Objective, label, objectives};

pub(super) fn objective(session: &mut Session, arguments: &str) -> Answered {
    let (rest, file) = option(arguments, "--out")?;
    let (rest, size) = size(session, &rest)?;
    session.script.guard().rearm();
    let mut all = Vec::new();
    for recipe in chosen(session, &rest)? {
        let objective = Objective::of(&recipe, Some(&session.data.batch), size)?;
        all.push((label(&recipe), objective));
    }
    let table = objectives::table(&all, session.paint);
    plot::finish(session, &objectives::figure(&all), file, &table)
}

pub(super) fn mass(session: &mut Session, arguments: &str) -> Answered {
    let recipe = session.recipe_of(arguments)?;
    session.script.guard().rearm();
    let loss = session.script.host().loss()?;
    let mass = Mass::of(&recipe, &loss, &session.data.batch)?;
    let head = session.paint.bold(&title(&recipe));
    Ok(format!("{head}\n{}", mass.table(session.paint)))
}
