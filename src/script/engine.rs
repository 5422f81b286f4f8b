//! Makes a script engine that has no functions yet, and adds functions and types to modules.

use std::any::TypeId;

use rhai::packages::{
    ArithmeticPackage, BasicArrayPackage, BasicFnPackage, BasicIteratorPackage, BasicMapPackage,
    BasicMathPackage, BasicStringPackage, LogicPackage, MoreStringPackage, Package,
};
use rhai::{
    Dynamic, Engine, FuncRegistration, LexError, Module, NativeCallContext, RhaiFunc,
    RhaiNativeFunc, Shared, Token, Variant,
};

use super::error::{CallError, Raised, located};

/// Returns the packages of Rhai's own functions; `natives.txt` lists the functions that scripts may call. The packages for time,
/// files and bytes are excluded, because no formula needs them, and a step's result must depend only on batch, state and seed.
pub(crate) fn packages() -> [Shared<Module>; 9] {
    [
        ArithmeticPackage::new().as_shared_module(),
        BasicStringPackage::new().as_shared_module(),
        BasicIteratorPackage::new().as_shared_module(),
        BasicFnPackage::new().as_shared_module(),
        LogicPackage::new().as_shared_module(),
        BasicMathPackage::new().as_shared_module(),
        BasicArrayPackage::new().as_shared_module(),
        BasicMapPackage::new().as_shared_module(),
        MoreStringPackage::new().as_shared_module(),
    ]
}

/// Makes an engine that reads the tokens of the recipe language and has no functions.
pub(in crate::script) fn bare() -> Engine {
    let mut engine = Engine::new_raw();
    #[expect(
        deprecated,
        reason = "deprecated only because it may change, and the version is pinned"
    )]
    engine.on_parse_token(|token, _, _| own_token(token));
    engine
}

/// Converts a Rhai token to a token of the recipe language, where `with` names a method, and `^` and infinite numbers are errors.
pub(crate) fn own_token(token: Token) -> Token {
    match token {
        Token::Reserved(word) if *word == "with" => Token::Identifier(word),
        // A number that is too large would otherwise silently become infinite.
        Token::FloatConstant(number) if !number.0.is_finite() => {
            Token::LexError(LexError::MalformedNumber(number.1.to_string()).into())
        }
        // Rhai's `^` is the bitwise exclusive or of integers (`2 ^ 3` is 1), but users expect a power.
        Token::XOr | Token::XOrAssign => Token::Reserved(Box::new("^".into())),
        token => token,
    }
}

pub(in crate::script) fn add<A: 'static, const N: usize, const X: bool, R, const F: bool>(
    module: &mut Module,
    name: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
) where
    R: Variant + Clone,
{
    FuncRegistration::new(name).set_into_module(module, function);
}

/// Adds a function whose arguments have the given types; `Dynamic` stands for any type.
pub(in crate::script) fn add_raw(
    module: &mut Module,
    name: &str,
    types: &[TypeId],
    function: impl Fn(&NativeCallContext, &mut [&mut Dynamic]) -> Raised<Dynamic>
    + Send
    + Sync
    + 'static,
) {
    let with_context = move |context: Option<NativeCallContext>, args: &mut [&mut Dynamic]| {
        function(&context.expect("the function has its context"), args)
    };
    let function = RhaiFunc::Method {
        func: Shared::new(with_context),
        has_context: true,
        is_pure: true,
        is_volatile: true,
    };
    FuncRegistration::new(name).set_into_module_raw(module, types, function);
}

/// A method that takes no arguments.
pub(in crate::script) type Method<T> = fn(&T) -> Result<Dynamic, CallError>;

/// Adds a type, the function that converts its values to strings, and its other methods.
pub(in crate::script) fn add_type<T: Variant + Clone>(
    module: &mut Module,
    name: &str,
    to_string: Method<T>,
    others: &[(&str, Method<T>)],
) {
    module.set_custom_type::<T>(name);
    let shown = [("to_string", to_string), ("to_debug", to_string)];
    for &(name, method) in shown.iter().chain(others) {
        let method =
            move |context: NativeCallContext, value: &mut T| located(&context, method(value));
        add(module, name, method);
    }
}
