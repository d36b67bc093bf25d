package wasm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/agentcell/agentcell/wasm/rewrite"
)

// rewritten is a module that was checked and rewritten: all that an engine needs
// of it.
type rewritten struct {
	// Size is that of the original.
	Size    int64
	Imports []string // as "module.name", sorted
	Globals []byte   // the types of the mutable ones
	Start   []string // the exports that the golden run calls, in order
	Memory  uint64   // in bytes, at first
	code    []byte
}

// rewrittenFile is what stands in front of the code in a file of the cache.
type rewrittenFile struct {
	rewritten
	Bytes    int
	Checksum uint32 // CRC-32C of the code
}

// cacheFile is where the rewritten form of a module is kept, beside the machine
// code that wazero makes of it.
func (e *Engine) cacheFile(digest abi.Digest) string {
	return filepath.Join(e.cfg.CacheDir, fmt.Sprintf("agentcell-rewrite-%d", rewrite.Revision), digest.String())
}

func checksum(code []byte) uint32 { return crc32.Checksum(code, crc32.MakeTable(crc32.Castagnoli)) }

// cached gives what keep has kept. What is missing, or is not what keep wrote, is
// made again.
func (e *Engine) cached(digest abi.Digest) (rewritten, bool) {
	if e.cfg.CacheDir == "" {
		return rewritten{}, false
	}
	file, err := os.ReadFile(e.cacheFile(digest))
	if err != nil {
		return rewritten{}, false
	}
	head, code, _ := bytes.Cut(file, []byte("\n"))
	var f rewrittenFile
	if json.Unmarshal(head, &f) != nil || f.Bytes != len(code) || f.Checksum != checksum(code) {
		return rewritten{}, false
	}
	f.code = code
	return f.rewritten, true
}

// keep keeps a module for cached, if that is possible.
func (e *Engine) keep(digest abi.Digest, m rewritten) {
	if e.cfg.CacheDir == "" {
		return
	}
	head, err := json.Marshal(rewrittenFile{m, len(m.code), checksum(m.code)})
	if err != nil {
		return
	}
	name := e.cacheFile(digest)
	if os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return
	}
	// Another process may do the same: what has its name is whole.
	f, err := os.CreateTemp(filepath.Dir(name), "new-*")
	if err != nil {
		return
	}
	_, err = f.Write(append(append(head, '\n'), m.code...))
	if f.Close() != nil || err != nil || os.Rename(f.Name(), name) != nil {
		_ = os.Remove(f.Name()) // it only takes room
	}
}
