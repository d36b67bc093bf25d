package host

import "github.com/agentcell/agentcell/journal"

// readRefs reads what the refs of a kind stand for, in the order of their names.
func readRefs[T any](j *journal.Journal, kind string, read func(journal.Ref) (T, error)) ([]T, error) {
	refs, err := j.Refs(kind)
	if err != nil {
		return nil, err
	}
	list := make([]T, len(refs))
	for i, ref := range refs {
		if list[i], err = read(ref); err != nil {
			return nil, err
		}
	}
	return list, nil
}
