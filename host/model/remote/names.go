package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/agentcell/agentcell/sdk/abi"
)

// maxToolName is the longest name of a tool that every API takes.
const maxToolName = 64

// ToolNames has the names of tools as APIs take them, which is with letters,
// digits, '_' and '-' alone, while ours have dots, such as "server.tool".
type ToolNames map[string]string // from theirs to ours

// NewToolNames has the names of the given tools.
func NewToolNames(tools []abi.ToolDefinition) ToolNames {
	names := ToolNames{}
	for _, t := range tools {
		names[APIName(t.Name)] = t.Name
	}
	return names
}

// Ours is our name of what an API calls name. One that was never offered stays as
// it is: to refuse it is the host's part.
func (n ToolNames) Ours(name string) string {
	if ours, ok := n[name]; ok {
		return ours
	}
	return name
}

// APIName is the name of a tool for an API. It is the same for the same name
// always, as the messages of turns before have it too. A name that must be changed
// gets a part of its digest, so that no two become one.
func APIName(name string) string {
	plain := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if plain == name && len(name) <= maxToolName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "_" + hex.EncodeToString(sum[:4])
	return plain[:min(len(plain), maxToolName-len(suffix))] + suffix
}
