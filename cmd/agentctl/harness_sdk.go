package main

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"unicode"
)

const (
	// sdkModule is the module that has the SDK.
	sdkModule = "github.com/agentcell/agentcell"
	// sdkGo is the version of Go that its go.mod names.
	sdkGo = "1.26.0"
)

// sdkSource is where a new harness finds the SDK.
type sdkSource struct {
	Tree    string // a source tree; empty: nowhere but in the version
	Version string
}

// Replacement is the tree as go.mod has it.
func (s sdkSource) Replacement() string {
	if strings.ContainsFunc(s.Tree, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"'`(),;[]{}", r) }) {
		return strconv.Quote(s.Tree)
	}
	return s.Tree
}

var (
	release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	// between are versions that git describe gives to what is no release.
	between = regexp.MustCompile(`-\d+-g[0-9a-f]+|dirty`)
)

// findSDK finds the SDK for a harness in dir: what the flag names, the tree that
// dir, this program or its source lies in, or the version of this program.
func findSDK(flag, dir string) (sdkSource, error) {
	const none = "v0.0.0" // a replaced module needs some version
	if flag != "" {
		if release.MatchString(flag) {
			return sdkSource{Version: flag}, nil
		}
		tree, err := filepath.Abs(flag)
		if err != nil || !isSDK(tree) {
			return sdkSource{}, usagef("--sdk %q is neither a source tree of agentcell nor a version such as v0.1.0", flag)
		}
		return sdkSource{Tree: tree, Version: none}, nil
	}
	for _, place := range append([]string{dir}, ownPlaces()...) {
		for tree := place; tree != filepath.Dir(tree); tree = filepath.Dir(tree) {
			if isSDK(tree) {
				return sdkSource{Tree: tree, Version: none}, nil
			}
		}
	}
	if v := ownVersion(); release.MatchString(v) && !between.MatchString(v) {
		return sdkSource{Version: v}, nil
	}
	return sdkSource{}, &adviceError{
		usagef("no SDK: the source tree of this agentctl is not to be found, and it is no release"),
		"name a source tree of agentcell, or a version, with --sdk",
	}
}

// isSDK reports whether dir is the root of a source tree of agentcell.
func isSDK(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && regexp.MustCompile(`(?m)^module `+regexp.QuoteMeta(sdkModule)+`\s*$`).Match(text)
}

// ownPlaces are where this program lies, and its source if the compiler kept that.
func ownPlaces() []string {
	var places []string
	if program, err := os.Executable(); err == nil {
		if program, err = filepath.EvalSymlinks(program); err == nil {
			places = append(places, filepath.Dir(program))
		}
	}
	if _, source, _, ok := runtime.Caller(0); ok && filepath.IsAbs(source) {
		places = append(places, filepath.Dir(source))
	}
	return places
}
