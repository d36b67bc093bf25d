package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/host"
	"github.com/agentcell/agentcell/host/tool"
	"github.com/agentcell/agentcell/host/tool/extism"
	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// storedTools is the source of the tools that the store has, which are plug-ins.
type storedTools struct {
	*host.ToolStore
	plugins *extism.Plugins
}

var (
	_ tool.Source = (*storedTools)(nil)
	_ tool.Finder = (*storedTools)(nil)
)

func newStoredTools(j *journal.Journal, o Options) *storedTools {
	return &storedTools{
		ToolStore: host.NewToolStore(j, o.Now),
		plugins:   extism.New(extism.Options{CacheDir: o.CacheDir, Interpreter: o.Interpreter, Secret: o.Secret}),
	}
}

// PluginTool says where a tool of the store is from.
const PluginTool = "plug-in"

// Tools implements tool.Source.
func (s *storedTools) Tools(context.Context) ([]tool.Tool, error) {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	tools := make([]tool.Tool, len(list))
	for i, t := range list {
		if tools[i], err = s.tool(t); err != nil {
			return nil, err
		}
	}
	return tools, nil
}

// Tool implements tool.Finder.
func (s *storedTools) Tool(_ context.Context, name string) (tool.Tool, bool, error) {
	stored, err := s.Get(name)
	if errors.Is(err, host.ErrNotFound) {
		return tool.Tool{}, false, nil
	}
	if err != nil {
		return tool.Tool{}, false, err
	}
	t, err := s.tool(stored)
	return t, err == nil, err
}

func (s *storedTools) tool(t host.StoredTool) (tool.Tool, error) {
	m, err := extism.ParseManifest(t.Manifest)
	if err != nil {
		return tool.Tool{}, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	module := extism.Module{Digest: t.Module, Code: func() ([]byte, error) { return s.Module(t.Module) }}
	return s.plugin(t.ToolGrant, module, m), nil
}

// plugin is the tool that a plug-in is.
func (s *storedTools) plugin(g abi.ToolGrant, module extism.Module, m extism.Manifest) tool.Tool {
	return tool.Tool{
		Definition: g.ToolDefinition, Mediation: g.Mediation, OnCrash: g.OnCrash, From: PluginTool,
		Executor: s.plugins.Executor(module, m),
	}
}

// AddPlugin stores an Extism plug-in as a tool, once it has been loaded: it wraps
// extism.ErrManifest and extism.ErrModule for one that cannot be, and else is ToolStore's
// Add. Without an InputSchema a model is told what follows from the manifest.
func (h *Host) AddPlugin(ctx context.Context, grant abi.ToolGrant, m extism.Manifest, code []byte) (host.StoredTool, error) {
	if err := h.stored.plugins.Check(ctx, code, m); err != nil {
		return host.StoredTool{}, fmt.Errorf("add tool %q: %w", grant.Name, err)
	}
	if len(grant.InputSchema) == 0 {
		grant.InputSchema = m.Schema()
	}
	manifest, err := json.Marshal(m)
	if err != nil {
		return host.StoredTool{}, fmt.Errorf("add tool %q: %w", grant.Name, err)
	}
	module := extism.Module{Digest: abi.DigestOf(code), Code: func() ([]byte, error) { return code, nil }}
	return h.stored.Add(ctx, h.stored.plugin(grant, module, m), manifest, code)
}

// ToolStore keeps the tools that are stored.
func (h *Host) ToolStore() *host.ToolStore { return h.stored.ToolStore }
