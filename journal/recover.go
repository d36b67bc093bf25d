package journal

import (
	"os"
	"path/filepath"
)

// removeEmptyLogs removes log files without a byte. Badger makes a log file first
// and gives it its size then; killed in between it leaves one that it refuses to
// open ever after. Nothing was in it.
func removeEmptyLogs(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		switch filepath.Ext(f.Name()) {
		case ".mem", ".vlog":
		default:
			continue
		}
		info, err := f.Info()
		if err != nil {
			return err
		}
		if info.Size() > 0 {
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
