package rewrite

// callGraph knows which functions can be called by other ways than from the
// start function. Indices are the original's.
type callGraph struct {
	// wanted is set when the module has a data count section: without one,
	// nothing depends on the graph.
	wanted bool
	start  uint32
	roots  []uint32
	calls  []uint32 // callees, function after function
	ends   []int    // where each defined function's callees end
	drops  []drop
}

// drop is an instruction that uses up or reads a passive data segment.
type drop struct {
	function uint32
	at       int
	name     string
}

func (g *callGraph) addRoot(f uint32) { g.roots = append(g.roots, f) }

func (g *callGraph) addCall(f uint32) {
	if g.wanted {
		g.calls = append(g.calls, f)
	}
}

// reachable marks what the roots reach, among n functions of which the first
// ones are imported.
func (g *callGraph) reachable(n, imported int) []bool {
	seen := make([]bool, n)
	todo := append([]uint32(nil), g.roots...)
	for len(todo) > 0 {
		f := int(todo[len(todo)-1])
		todo = todo[:len(todo)-1]
		if seen[f] {
			continue
		}
		seen[f] = true
		if f -= imported; f >= 0 {
			from := 0
			if f > 0 {
				from = g.ends[f-1]
			}
			todo = append(todo, g.calls[from:g.ends[f]]...)
		}
	}
	return seen
}

// checkDropping refuses what reads or drops a data segment outside the golden
// run: whether a segment is still there is not part of an image.
func (w *rewriter) checkDropping() {
	if w.r.err != nil || len(w.graph.drops) == 0 {
		return
	}
	seen := w.graph.reachable(len(w.functions), int(w.imported))
	for _, d := range w.graph.drops {
		if seen[d.function] {
			w.section, w.function = sectionNames[sectionCode], int(d.function)
			w.r.fail(d.at, "%s: data segments are gone after the start function, and this function can be reached otherwise; make the segment an active one", d.name)
			return
		}
	}
}
