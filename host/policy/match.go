package policy

import (
	"regexp"
	"regexp/syntax"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// patterns are the regular expressions of a policy, by their text. CEL's own matches
// looks at each byte of a text as often as the pattern, once it is compiled, has steps,
// which a repetition such as {500} makes many of, and asks for the cost afterwards: this
// one asks before.
type patterns struct{ known sync.Map }

type pattern struct {
	*regexp.Regexp
	steps uint64
}

func (p *patterns) find(text string) (pattern, error) {
	if known, ok := p.known.Load(text); ok {
		return known.(pattern), nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return pattern{}, err
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{}, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return pattern{}, err
	}
	found := pattern{re, uint64(len(program.Inst))}
	p.known.Store(text, found)
	return found, nil
}

// cost is what it takes at most to match a text.
func (p pattern) cost(text string) uint64 {
	const stepsPerUnit = 100
	return 1 + uint64(len(text))*p.steps/stepsPerUnit
}

// function is the function matches, whose pattern stands in the condition.
func (p *patterns) function() cel.EnvOption {
	return cel.Function(overloads.Matches, cel.MemberOverload(overloads.MatchesString,
		[]*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
		cel.BinaryBinding(func(text, re ref.Val) ref.Val {
			pattern, err := p.find(string(re.(types.String)))
			switch {
			case err != nil:
				return types.WrapErr(err)
			case pattern.cost(string(text.(types.String))) > maxCost:
				return types.WrapErr(errCost)
			}
			return types.Bool(pattern.MatchString(string(text.(types.String))))
		})))
}
