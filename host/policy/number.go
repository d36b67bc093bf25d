package policy

import (
	"fmt"
	"math/big"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// number makes CEL's value of a JSON number. One that is whole is an int, or a uint if
// it is too large for that, however it is written; one with a fraction is the double
// that is nearest.
func number(text string) (ref.Val, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(n), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || len(text) > maxDigits {
		return nil, fmt.Errorf("%.40s is a number that no rule can compare", text)
	}
	if f == 0 {
		return types.Double(f), nil // its exponent may be anything
	}
	r, ok := new(big.Rat).SetString(text)
	switch {
	case !ok:
		return nil, fmt.Errorf("%.40q is no number", text)
	case !r.IsInt():
		return types.Double(f), nil
	case r.Num().IsInt64():
		return types.Int(r.Num().Int64()), nil
	case r.Num().IsUint64():
		return types.Uint(r.Num().Uint64()), nil
	}
	return wide{r.Num()}, nil
}

// maxDigits bounds the text of a number, as the effort to read it grows faster than that.
const maxDigits = 1000

// wide is a whole number that does not fit into 64 bits. It is equal to itself and to
// no other number, and has no order: string and double make something of it that has.
type wide struct{ n *big.Int }

var _ ref.Val = wide{}

var wideType = types.NewOpaqueType("wide")

// ConvertToNative implements ref.Val.
func (w wide) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a number beyond 64 bits is no %v", t)
}

// ConvertToType implements ref.Val.
func (w wide) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.StringType:
		return types.String(w.n.String())
	case types.DoubleType:
		f, _ := new(big.Float).SetInt(w.n).Float64()
		return types.Double(f)
	case types.TypeType:
		return wideType
	}
	return types.NewErr("a number beyond 64 bits is no %s", t.TypeName())
}

// Equal implements ref.Val.
func (w wide) Equal(other ref.Val) ref.Val {
	o, ok := other.(wide)
	return types.Bool(ok && w.n.Cmp(o.n) == 0)
}

// Type implements ref.Val.
func (w wide) Type() ref.Type { return wideType }

// Value implements ref.Val.
func (w wide) Value() any { return w.n }
