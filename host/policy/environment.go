package policy

import (
	"math/big"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"

	"github.com/agentcell/agentcell/sdk/abi"
)

// allowed are the functions that a condition may call beside operators: they look at
// values, in time that grows as those do, and none makes one much larger than those that
// it was given. "replace" and "format" would let a call of 4 MB want all the memory there
// is, "indexOf" and those of sets days, as CEL asks for the cost of a call when it is
// over; and a time of which the time zone is asked means what the machine's files say.
// What another version of CEL has beside these is not there before it is written here.
func allowed() []string {
	return []string{
		overloads.Size, overloads.Contains, overloads.StartsWith, overloads.EndsWith, overloads.Matches,
		"lowerAscii", "upperAscii", "substring", "trim", "split",
		overloads.TypeConvertBool, overloads.TypeConvertBytes, overloads.TypeConvertDouble, overloads.TypeConvertDyn,
		overloads.TypeConvertInt, overloads.TypeConvertString, overloads.TypeConvertType, overloads.TypeConvertUint,
		overloads.TypeConvertDuration, overloads.TypeConvertTimestamp,
		"base64.decode",
		"ip", "isIP", "ip.isCanonical", "family", "isLoopback", "isUnspecified", "isGlobalUnicast",
		"isLinkLocalUnicast", "isLinkLocalMulticast", "cidr", "isCIDR", "containsIP", "containsCIDR", "prefixLength", "masked",
		"optional.none", "optional.of", "hasValue", "value", "or", "orValue",
	}
}

// environment is what conditions are compiled in.
func environment(p *patterns) (*cel.Env, error) {
	may := map[string]bool{}
	for _, name := range allowed() {
		may[name] = true
	}
	without := env.NewLibrarySubset().AddExcludedFunctions(env.NewFunction(overloads.Matches))
	return cel.NewCustomEnv(append(variables(),
		cel.StdLib(cel.StdLibSubset(without)), p.function(),
		cel.OptionalTypes(), ext.Strings(), ext.Encoders(), ext.Network(), ext.Bindings(), ext.TwoVarComprehensions(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals(), bounded{may}),
		cel.Function(overloads.TypeConvertString, cel.Overload("wide_to_string", []*cel.Type{wideType}, cel.StringType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.String(v.(wide).n.String()) }))),
		cel.Function(overloads.TypeConvertDouble, cel.Overload("wide_to_double", []*cel.Type{wideType}, cel.DoubleType,
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				f, _ := new(big.Float).SetInt(v.(wide).n).Float64()
				return types.Double(f)
			}))),
		// So that a value that is deeply nested costs what it takes to look at.
		cel.CostSizingStrategy(cost.AggregateSizingStrategy(
			types.SizeCalculatorMaxDepth(2*abi.MaxDepth), types.SizeCalculatorMaxTraversal(1<<30))),
	)...)
}

// bounded refuses conditions that could take what they like: that call functions which
// are not allowed, or match against a pattern that stands in the arguments.
type bounded struct{ may map[string]bool }

// Name implements cel.ASTValidator.
func (bounded) Name() string { return "agentcell.bounded" }

// Validate implements cel.ASTValidator.
func (b bounded) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *ast.AST, issues *cel.Issues) {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(a), ast.KindMatcher(ast.CallKind)) {
		call := e.AsCall()
		switch name := call.FunctionName(); {
		case !b.may[name] && !isOperator(name):
			issues.ReportErrorAtID(e.ID(), "the function %s is none that a policy has", name)
		case name == overloads.Matches && call.Args()[len(call.Args())-1].Kind() != ast.LiteralKind:
			issues.ReportErrorAtID(e.ID(), "want the pattern here, in quotes")
		}
	}
}

// isOperator reports whether a function is what an operator or a macro stands for.
func isOperator(name string) bool {
	_, ok := operators.FindReverse(name)
	return ok || name == operators.NotStrictlyFalse
}

// linear is the cost of calls that CEL takes for one step, whatever the length of a text,
// and of matches.
type linear struct{ *patterns }

var _ cost.ActualCostEstimator = linear{}

// CallCost implements cost.ActualCostEstimator.
func (l linear) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	const bytesPerUnit = 10 // as CEL has it for other calls
	text, ok := args[0].(types.String)
	if !ok {
		return nil
	}
	units := 1 + uint64(len(text))/bytesPerUnit
	switch last := args[len(args)-1].(type) {
	case traits.Mapper:
		if function != operators.In {
			return nil
		}
	case types.String:
		switch function {
		case overloads.Size:
		case overloads.Matches:
			if p, err := l.find(string(last)); err == nil {
				units = p.cost(string(text))
			}
		default:
			return nil
		}
	default:
		return nil
	}
	return &units
}
