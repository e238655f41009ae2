//! The language of templates. Everything that could make values grow, or that no prompt needs, is refused.

use std::collections::BTreeSet;
use std::ops::Range;

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, ForLoop, Stmt};
use minijinja::machinery::{Span, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::{FILTERS, TEMPLATE_LIMIT, TemplateError};
use banksman_core::suggest::closest;

/// Maximum number of tokens in one pair of braces: the parser nests them.
const TAG_LIMIT: usize = 100;

/// Maximum number of `{% … %}` in one template, for the same reason.
const BLOCK_LIMIT: usize = 200;

/// The syntax of templates.
pub(super) fn syntax() -> SyntaxConfig {
    let mut builder = SyntaxConfig::builder();
    // The text must be passed on unchanged.
    builder.keep_trailing_newline(true);
    builder.build().unwrap_or_default()
}

/// All errors of a template.
pub(super) fn check(template: &str, vars: &BTreeSet<&str>) -> Vec<TemplateError> {
    if let Some(error) = oversize(template) {
        return vec![error];
    }
    let root = match parse(template, "template", syntax()) {
        Ok(root) => root,
        Err(error) => {
            let message = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
            let wrong = TemplateError::new(message);
            return vec![error.range().map_or(wrong.clone(), |range| wrong.at(range))];
        }
    };
    let mut walk = Walk { vars, loops: Vec::new(), wrong: Vec::new() };
    walk.statement(&root);
    walk.wrong
}

/// Reports a template that is too long or too deep to be parsed.
fn oversize(template: &str) -> Option<TemplateError> {
    if template.len() > TEMPLATE_LIMIT {
        let message = format!("a template may have at most {TEMPLATE_LIMIT} bytes, this one has {}", template.len());
        return Some(TemplateError::new(message));
    }
    let (mut words, mut blocks) = (0, 0);
    for token in tokenize(template, false, syntax()) {
        // The parser reports invalid tokens, with their places.
        let Ok((token, span)) = token else { return None };
        match token {
            Token::BlockStart => (words, blocks) = (0, blocks + 1),
            Token::VariableStart => words = 0,
            _ => words += 1,
        }
        if words > TAG_LIMIT {
            return Some(TemplateError::new(format!("more than {TAG_LIMIT} words in one pair of braces")).at(range(span)));
        }
        if blocks > BLOCK_LIMIT {
            return Some(TemplateError::new(format!("more than {BLOCK_LIMIT} `{{% … %}}` in one template")).at(range(span)));
        }
    }
    None
}

fn range(span: Span) -> Range<usize> {
    span.start_offset as usize..span.end_offset as usize
}

struct Walk<'a, 't> {
    vars: &'a BTreeSet<&'a str>,
    loops: Vec<&'t str>,
    wrong: Vec<TemplateError>,
}

impl<'t> Walk<'_, 't> {
    fn statement(&mut self, statement: &Stmt<'t>) {
        match statement {
            Stmt::Template(template) => self.body(&template.children),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::EmitRaw(_) => {}
            Stmt::ForLoop(each) => self.each(each),
            Stmt::IfCond(choice) => {
                self.expression(&choice.expr);
                self.body(&choice.true_body);
                self.body(&choice.false_body);
            }
            Stmt::WithBlock(it) => self.refuse(it.span()),
            Stmt::Set(it) => self.refuse(it.span()),
            Stmt::SetBlock(it) => self.refuse(it.span()),
            Stmt::AutoEscape(it) => self.refuse(it.span()),
            Stmt::FilterBlock(it) => self.refuse(it.span()),
            Stmt::Do(it) => self.refuse(it.span()),
        }
    }

    fn refuse(&mut self, span: Span) {
        let wrong = TemplateError::new("only `{{ … }}`, `{% if … %}` and `{% for … %}` can be used in a template");
        self.wrong.push(wrong.at(range(span)));
    }

    fn body(&mut self, body: &[Stmt<'t>]) {
        body.iter().for_each(|statement| self.statement(statement));
    }

    fn each(&mut self, each: &ForLoop<'t>) {
        self.expression(&each.iter);
        let outside = self.loops.len();
        self.loops.push("loop");
        self.targets(&each.target);
        each.filter_expr.iter().for_each(|filter| self.expression(filter));
        self.body(&each.body);
        self.loops.truncate(outside);
        self.body(&each.else_body);
    }

    /// Adds the loop variables of a loop: one name, or several.
    fn targets(&mut self, target: &Expr<'t>) {
        match target {
            Expr::Var(var) => self.loops.push(var.id),
            Expr::List(list) => list.items.iter().for_each(|item| self.targets(item)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.targets(item)),
            other => self.expression(other),
        }
    }

    fn expression(&mut self, expression: &Expr<'t>) {
        match expression {
            Expr::Var(var) => self.variable(var.id, var.span()),
            Expr::Const(_) => {}
            Expr::Slice(slice) => {
                self.expression(&slice.expr);
                [&slice.start, &slice.stop, &slice.step].into_iter().flatten().for_each(|part| self.expression(part));
            }
            Expr::UnaryOp(operation) => self.expression(&operation.expr),
            Expr::BinOp(operation) => {
                self.operator(operation.op, operation.span());
                self.expression(&operation.left);
                self.expression(&operation.right);
            }
            Expr::Compare(compare) => {
                self.expression(&compare.expr);
                compare.ops.iter().for_each(|other| self.expression(&other.expr));
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr);
                self.expression(&choice.true_expr);
                choice.false_expr.iter().for_each(|other| self.expression(other));
            }
            Expr::Filter(filter) => {
                self.filter(filter.name, filter.span());
                filter.expr.iter().for_each(|inner| self.expression(inner));
                filter.args.iter().for_each(|arg| self.argument(arg, filter.span()));
            }
            Expr::GetAttr(part) => self.expression(&part.expr),
            Expr::GetItem(part) => {
                self.expression(&part.expr);
                self.expression(&part.subscript_expr);
            }
            Expr::Test(it) => self.refuse_value(it.span()),
            Expr::Call(it) => self.refuse_value(it.span()),
            Expr::List(it) => self.refuse_value(it.span()),
            Expr::Tuple(it) => self.refuse_value(it.span()),
            Expr::Map(it) => self.refuse_value(it.span()),
        }
    }

    fn refuse_value(&mut self, span: Span) {
        let wrong = TemplateError::new("a template cannot call, test or make anything: it can name variables, and parts of them");
        self.wrong.push(wrong.at(range(span)));
    }

    fn variable(&mut self, name: &str, span: Span) {
        if self.loops.contains(&name) || self.vars.contains(name) {
            return;
        }
        let wrong = TemplateError::new(format!("there is no variable {name:?}")).at(range(span));
        let hint = closest(name, self.vars.iter().copied()).map(|near| format!("did you mean {near:?}?").into());
        self.wrong.push(TemplateError { variable: Some(name.into()), hint, ..wrong });
    }

    fn operator(&mut self, operator: BinOpKind, span: Span) {
        use BinOpKind::{Add, Concat, Div, Eq, FloorDiv, Gt, Gte, In, Lt, Lte, Mul, Ne, Pow, Rem, ScAnd, ScOr, Sub};
        match operator {
            Eq | Ne | Lt | Lte | Gt | Gte | ScAnd | ScOr | In => {}
            Add | Sub | Mul | Div | FloorDiv | Rem | Pow | Concat => {
                let wrong = TemplateError::new("a template cannot calculate").at(range(span));
                self.wrong.push(wrong.hint("texts are joined by writing them beside each other: {{ a }}-{{ b }}"));
            }
        }
    }

    fn filter(&mut self, name: &str, span: Span) {
        if FILTERS.contains(&name) {
            return;
        }
        let wrong = TemplateError::new(format!("there is no filter {name:?}")).at(range(span));
        self.wrong.push(match closest(name, FILTERS) {
            Some(near) => wrong.hint(format!("did you mean `{near}`?")),
            None => wrong.hint(format!("the filters are {}", FILTERS.join(", "))),
        });
    }

    fn argument(&mut self, argument: &CallArg<'t>, span: Span) {
        match argument {
            CallArg::Pos(value) => self.expression(value),
            CallArg::Kwarg(..) | CallArg::PosSplat(_) | CallArg::KwargSplat(_) => self.refuse_value(span),
        }
    }
}
