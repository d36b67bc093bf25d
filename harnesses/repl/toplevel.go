package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/parser"
	"github.com/dop251/goja/token"
)

// wrappedMark stands behind the name of a source that begins with a line that is not
// of the code.
const wrappedMark = "~"

var awaits = regexp.MustCompile(`\bawait\b`)

// compile compiles code as consoles do. What it declares at the top level belongs to
// the global object, and may be declared again; await may stand there, and then
// the value of the program is the promise of its value; and what begins with a brace
// is an object, if it can be.
func compile(source, code string) (program *goja.Program, waits bool, err error) {
	if awaits.MatchString(code) {
		if parsed, err := parse(source+wrappedMark, "(async () => {\n"+code+"\n})()"); err == nil && hoist(parsed) {
			if program, err = translate(parsed); err == nil {
				return program, true, nil
			}
		}
	}
	if object := strings.TrimSpace(code); strings.HasPrefix(object, "{") && strings.HasSuffix(object, "}") {
		if parsed, err := parse(source+wrappedMark, "(\n"+code+"\n)"); err == nil {
			if program, err = translate(parsed); err == nil {
				return program, false, nil
			}
		}
	}
	parsed, err := parse(source, code)
	if err != nil {
		return nil, false, err
	}
	parsed.Body, parsed.DeclarationList = global(parsed.Body, parsed.DeclarationList)
	program, err = translate(parsed)
	return program, false, err
}

// translate makes a program of what was parsed.
func translate(parsed *ast.Program) (*goja.Program, error) {
	program, err := goja.CompileAST(parsed, false)
	var wrong *goja.CompilerSyntaxError
	if errors.As(err, &wrong) && wrong.File != nil {
		at := wrong.File.Position(wrong.Offset)
		return nil, syntaxError(wrong.Message, wrong.File.Name(), at.Line, at.Column)
	}
	return program, err
}

func syntaxError(message, source string, line, column int) error {
	return fmt.Errorf("SyntaxError: %s\n    at %s", message, place("", source, line, column))
}

// parse parses a program. Its code cannot name a source map, which would be a file.
func parse(source, code string) (*ast.Program, error) {
	program, err := parser.ParseFile(nil, source, code, 0, parser.WithDisableSourceMaps)
	var list parser.ErrorList
	switch {
	case err == nil:
		return program, nil
	case errors.As(err, &list) && len(list) > 0:
		at := list[0].Position
		return nil, syntaxError(list[0].Message, source, at.Line, at.Column)
	}
	return nil, fmt.Errorf("SyntaxError: %w", err)
}

// global makes variables of what let, const and class declare.
func global(body []ast.Statement, declared []*ast.VariableDeclaration) ([]ast.Statement, []*ast.VariableDeclaration) {
	body = append([]ast.Statement(nil), body...)
	for i, statement := range body {
		var list []*ast.Binding
		switch s := statement.(type) {
		case *ast.LexicalDeclaration:
			list = s.List
			for _, b := range list {
				if b.Initializer == nil {
					b.Initializer = undefined(s.Idx)
				}
			}
		case *ast.ClassDeclaration:
			list = []*ast.Binding{{Target: s.Class.Name, Initializer: s.Class}}
		default:
			continue
		}
		body[i] = &ast.VariableStatement{Var: statement.Idx0(), List: list}
		declared = append(declared, &ast.VariableDeclaration{Var: statement.Idx0(), List: list})
	}
	return body, declared
}

// undefined is the expression void 0.
func undefined(at file.Idx) ast.Expression {
	return &ast.UnaryExpression{
		Operator: token.VOID, Idx: at,
		Operand: &ast.NumberLiteral{Idx: at, Literal: "0", Value: int64(0)},
	}
}

// hoist takes what is declared in a wrapped program out to the top level, and lets the
// function return the value of its last statement. It is false if the code is not
// wrapped, as it has ended the function by itself.
func hoist(program *ast.Program) bool {
	function, ok := wrapper(program)
	if !ok {
		return false
	}
	block, ok := function.Body.(*ast.BlockStatement)
	if !ok {
		return false
	}
	body, declared := global(block.List, function.DeclarationList)
	var functions, rest []ast.Statement
	for _, statement := range body {
		if _, ok := statement.(*ast.FunctionDeclaration); ok {
			functions = append(functions, statement)
		} else {
			rest = append(rest, statement)
		}
	}
	if n := len(rest); n > 0 {
		if last, ok := rest[n-1].(*ast.ExpressionStatement); ok {
			rest[n-1] = &ast.ReturnStatement{Return: last.Idx0(), Argument: last.Expression}
		}
	}
	block.List, function.DeclarationList = rest, nil
	program.Body = append(functions, program.Body...)
	program.DeclarationList = declared
	return true
}

// wrapper is the function that a wrapped program calls, which must be all of it.
func wrapper(program *ast.Program) (*ast.ArrowFunctionLiteral, bool) {
	if len(program.Body) != 1 {
		return nil, false
	}
	statement, ok := program.Body[0].(*ast.ExpressionStatement)
	if !ok {
		return nil, false
	}
	call, ok := statement.Expression.(*ast.CallExpression)
	if !ok {
		return nil, false
	}
	function, ok := call.Callee.(*ast.ArrowFunctionLiteral)
	return function, ok
}
