package wasm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"

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
	data    []rewrite.Segment // that memory has at first
}

// rewrittenFile is what stands in front of the code in a file of the cache.
type rewrittenFile struct {
	rewritten
	Bytes    int      // of the code, which is followed by the content of Data
	Data     []extent // where the segments of memory go
	Checksum uint32   // CRC-32C of code and content
}

// extent is a part of memory.
type extent struct {
	Offset uint32
	Size   int
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
	if json.Unmarshal(head, &f) != nil || f.Bytes < 0 || f.Bytes > len(code) || f.Checksum != checksum(code) {
		return rewritten{}, false
	}
	var content []byte
	f.code, content = code[:f.Bytes:f.Bytes], code[f.Bytes:]
	for _, d := range f.Data {
		if d.Size < 0 || d.Size > len(content) || uint64(d.Offset)+uint64(d.Size) > f.Memory {
			return rewritten{}, false
		}
		f.data = append(f.data, rewrite.Segment{Offset: d.Offset, Content: content[:d.Size]})
		content = content[d.Size:]
	}
	return f.rewritten, len(content) == 0
}

// keep keeps a module for cached, if that is possible.
func (e *Engine) keep(digest abi.Digest, m rewritten) {
	if e.cfg.CacheDir == "" {
		return
	}
	f := rewrittenFile{rewritten: m, Bytes: len(m.code)}
	body := slices.Clone(m.code)
	for _, s := range m.data {
		f.Data = append(f.Data, extent{s.Offset, len(s.Content)})
		body = append(body, s.Content...)
	}
	f.Checksum = checksum(body)
	head, err := json.Marshal(f)
	if err != nil {
		return
	}
	name := e.cacheFile(digest)
	if os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return
	}
	// Another process may do the same: what has its name is whole.
	file, err := os.CreateTemp(filepath.Dir(name), "new-*")
	if err != nil {
		return
	}
	_, err = file.Write(append(append(head, '\n'), body...))
	if file.Close() != nil || err != nil || os.Rename(file.Name(), name) != nil {
		_ = os.Remove(file.Name()) // it only takes room
	}
}
