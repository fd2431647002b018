/* Opens the files that it is given, and prints for each whether it could. The program names error numbers of libhdf5, so
 * the linker puts these variables into the program itself, and the library uses them there. */
#include <stdint.h>
#include <stdio.h>

extern int64_t H5E_ERR_CLS_g, H5E_FILE_g, H5E_CANTOPENFILE_g;
int H5open(void);
int64_t H5Fopen(const char *name, unsigned flags, int64_t fapl);
int H5Fclose(int64_t file);

int main(int count, char **files)
{
    H5open();
    if (H5E_ERR_CLS_g <= 0 || H5E_FILE_g <= 0 || H5E_CANTOPENFILE_g <= 0)
        return 1;
    for (int i = 1; i < count; i++) {
        int64_t file = H5Fopen(files[i], 0, 0);
        printf("%s\n", file > 0 ? "open" : "not open");
        if (file > 0 && H5Fclose(file) < 0)
            return 1;
    }
    return 0;
}
