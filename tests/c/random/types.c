/* Datatypes, in files and in memory, and random elements of them. */
#include "random.h"

static hid_t integer_type(void)
{
    const hid_t types[] = {
        H5T_STD_I8LE,  H5T_STD_U8LE,  H5T_STD_I16LE, H5T_STD_I16BE, H5T_STD_U16LE, H5T_STD_I32LE,
        H5T_STD_I32BE, H5T_STD_U32LE, H5T_STD_I64LE, H5T_STD_I64BE, H5T_STD_U64BE,
    };
    return H5(H5Tcopy(types[below(sizeof types / sizeof *types)]));
}

static hid_t float_type(void)
{
    const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE};
    return H5(H5Tcopy(types[below(4)]));
}

static hid_t number_type(void)
{
    return one_in(2) ? integer_type() : float_type();
}

static hid_t string_type(size_t size)
{
    const H5T_str_t paddings[] = {H5T_STR_NULLTERM, H5T_STR_NULLPAD, H5T_STR_SPACEPAD};
    const hid_t type = H5(H5Tcopy(H5T_C_S1));
    H5(H5Tset_size(type, size));
    H5(H5Tset_strpad(type, paddings[below(3)]));
    if (one_in(2)) {
        H5(H5Tset_cset(type, H5T_CSET_UTF8));
    }
    return type;
}

static hid_t array_type(void)
{
    const hsize_t dims[] = {within(1, 3), within(1, 3)};
    const hid_t base = number_type();
    const hid_t type = H5(H5Tarray_create2(base, (unsigned)within(1, 2), dims));
    H5(H5Tclose(base));
    return type;
}

static hid_t enum_type(void)
{
    const char *names[] = {"red", "green", "blue", "none at all"};
    const bool wide = one_in(2);
    const hid_t type = H5(H5Tenum_create(wide ? H5T_STD_I16BE : H5T_STD_I8LE));
    const int members = (int)within(2, 4);
    for (int i = 0; i < members; i++) {
        const int8_t narrow = (int8_t)(3 * i - 1);
        /* Values are given in the type of the file. */
        const uint8_t big[2] = {(uint8_t)(narrow < 0 ? 0xff : 0), (uint8_t)narrow};
        H5(H5Tenum_insert(type, names[i], wide ? (const void *)big : &narrow));
    }
    return type;
}

static hid_t opaque_type(void)
{
    const hid_t type = H5(H5Tcreate(H5T_OPAQUE, (size_t)within(1, 9)));
    H5(H5Tset_tag(type, "opaque"));
    return type;
}

static hid_t simple_type(void)
{
    switch (below(5)) {
    case 0:
        return array_type();
    case 1:
        return enum_type();
    case 2:
        return string_type((size_t)within(1, 8));
    default:
        return number_type();
    }
}

static hid_t compound_type(void)
{
    const int members = (int)within(1, 4);
    hid_t types[4];
    size_t offsets[4], size = 0;
    for (int i = 0; i < members; i++) {
        types[i] = simple_type();
        offsets[i] = size;
        /* HDF5 promises nothing about bytes between members, so there are none. */
        size += H5Tget_size(types[i]);
    }
    const hid_t type = H5(H5Tcreate(H5T_COMPOUND, size));
    for (int i = 0; i < members; i++) {
        const char name[] = {'m', (char)('0' + i), '\0'};
        H5(H5Tinsert(type, name, offsets[i], types[i]));
        H5(H5Tclose(types[i]));
    }
    return type;
}

static hid_t sequence_type(void)
{
    return H5(H5Tvlen_create(H5T_STD_I32LE));
}

static hid_t long_string_type(void)
{
    const hid_t type = H5(H5Tcopy(H5T_C_S1));
    H5(H5Tset_size(type, H5T_VARIABLE));
    return type;
}

hid_t file_type(enum content *content)
{
    *content = PLAIN;
    switch (below(16)) {
    case 0:
        return array_type();
    case 1:
        return enum_type();
    case 2:
        return opaque_type();
    case 3:
        return string_type((size_t)within(1, 12));
    case 4:
    case 5:
    case 6:
        return compound_type();
    case 7:
        return H5(H5Tcopy(one_in(2) ? H5T_STD_B8LE : H5T_STD_B16LE));
    case 8:
        *content = REFERENCES;
        return H5(H5Tcopy(H5T_STD_REF_OBJ));
    case 9:
        *content = one_in(2) ? STRINGS : SEQUENCES;
        return *content == STRINGS ? long_string_type() : sequence_type();
    default:
        return number_type();
    }
}

bool has_plain_numbers(hid_t type)
{
    const H5T_class_t class = H5Tget_class(type);
    return class == H5T_INTEGER || class == H5T_FLOAT;
}

static hid_t native_number(void)
{
    const hid_t types[] = {H5T_NATIVE_INT8,   H5T_NATIVE_INT16,  H5T_NATIVE_INT32, H5T_NATIVE_INT64,
                           H5T_NATIVE_UINT32, H5T_NATIVE_UINT64, H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE,
                           H5T_STD_I32BE,     H5T_IEEE_F64BE};
    return H5(H5Tcopy(types[below(sizeof types / sizeof *types)]));
}

/* Some of the members, or all of them, in another order. */
static hid_t subset_type(hid_t compound, bool whole)
{
    const int members = H5(H5Tget_nmembers(compound));
    const int first = (int)below((uint64_t)members);
    const int wanted = whole ? members : (int)within(1, (uint64_t)members);
    hid_t types[4];
    size_t size = 0;
    for (int i = 0; i < wanted; i++) {
        const hid_t member = H5(H5Tget_member_type(compound, (unsigned)((first + i) % members)));
        types[i] = has_plain_numbers(member) ? native_number() : H5(H5Tcopy(member));
        H5(H5Tclose(member));
        size += H5Tget_size(types[i]);
    }
    const hid_t type = H5(H5Tcreate(H5T_COMPOUND, size));
    size = 0;
    for (int i = 0; i < wanted; i++) {
        char *name = H5Tget_member_name(compound, (unsigned)((first + i) % members));
        REQUIRE(name);
        H5(H5Tinsert(type, name, size, types[i]));
        H5free_memory(name);
        size += H5Tget_size(types[i]);
        H5(H5Tclose(types[i]));
    }
    return type;
}

hid_t memory_type(hid_t type, enum content content, bool whole)
{
    if (content == STRINGS || content == SEQUENCES) {
        return content == STRINGS ? long_string_type() : H5(H5Tvlen_create(H5T_NATIVE_INT32));
    }
    if (content == PLAIN && has_plain_numbers(type) && !one_in(4)) {
        return native_number();
    }
    switch (H5Tget_class(type)) {
    case H5T_COMPOUND:
        /* Conversion may change bytes between members, so a memory type has none. */
        return subset_type(type, whole);
    case H5T_STRING:
        /* HDF5 pads converted elements with spaces, but not unwritten ones. */
        if (H5Tget_strpad(type) != H5T_STR_SPACEPAD && one_in(2)) {
            const hid_t longer = H5(H5Tcopy(type));
            H5(H5Tset_size(longer, (size_t)within(1, 14)));
            return longer;
        }
        return H5(H5Tcopy(type));
    default:
        return H5(H5Tcopy(type));
    }
}

/* Small numbers and some fractions. Not all fit into each type. */
static void fill_number(hid_t type, unsigned char *element)
{
    const double value = ((double)below(4000) - 2000) / (one_in(4) ? 8 : 1) * (one_in(20) ? 1e5 : 1);
    double bytes[2] = {value};
    H5(H5Tconvert(H5T_NATIVE_DOUBLE, type, 1, bytes, NULL, H5P_DEFAULT));
    memcpy(element, bytes, H5Tget_size(type));
}

static void fill_string(hid_t type, char *element)
{
    const size_t size = H5Tget_size(type);
    const H5T_str_t padding = H5Tget_strpad(type);
    const size_t most = padding == H5T_STR_NULLTERM ? size - 1 : size;
    const size_t length = (size_t)within(0, most);
    memset(element, padding == H5T_STR_SPACEPAD ? ' ' : '\0', size);
    for (size_t i = 0; i < length; i++) {
        element[i] = (char)('a' + below(26));
    }
}

static void fill_element(hid_t type, unsigned char *element)
{
    const size_t size = H5Tget_size(type);
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_FLOAT:
        fill_number(type, element);
        break;
    case H5T_STRING:
        fill_string(type, (char *)element);
        break;
    case H5T_ENUM:
        H5(H5Tget_member_value(type, (unsigned)below((uint64_t)H5Tget_nmembers(type)), element));
        break;
    case H5T_ARRAY: {
        const hid_t base = H5(H5Tget_super(type));
        fill_elements(base, element, size / H5Tget_size(base));
        H5(H5Tclose(base));
        break;
    }
    case H5T_COMPOUND:
        memset(element, 0, size);
        for (unsigned i = 0; i < (unsigned)H5Tget_nmembers(type); i++) {
            const hid_t member = H5(H5Tget_member_type(type, i));
            fill_element(member, element + H5Tget_member_offset(type, i));
            H5(H5Tclose(member));
        }
        break;
    default:
        for (size_t i = 0; i < size; i++) {
            element[i] = (unsigned char)number();
        }
    }
}

void fill_elements(hid_t type, void *elements, size_t count)
{
    const size_t size = H5Tget_size(type);
    for (size_t i = 0; i < count; i++) {
        fill_element(type, (unsigned char *)elements + i * size);
    }
}

static size_t length_of(uint64_t of)
{
    return (size_t)(of % 13);
}

void make_value(enum content content, uint64_t of, void *element)
{
    const size_t length = length_of(of);
    if (content == STRINGS) {
        char *text = malloc(length + 1);
        REQUIRE(text);
        for (size_t i = 0; i < length; i++) {
            text[i] = (char)('a' + (of + i) % 26);
        }
        text[length] = '\0';
        memcpy(element, &text, sizeof text);
        return;
    }
    int32_t *items = calloc(length + 1, sizeof *items);
    REQUIRE(items);
    for (size_t i = 0; i < length; i++) {
        items[i] = (int32_t)(of + 7 * i);
    }
    const hvl_t sequence = {.len = length, .p = items};
    memcpy(element, &sequence, sizeof sequence);
}

void free_value(enum content content, void *element)
{
    if (content == STRINGS) {
        char *text;
        memcpy(&text, element, sizeof text);
        free(text);
    } else {
        hvl_t sequence;
        memcpy(&sequence, element, sizeof sequence);
        free(sequence.p);
    }
}

bool is_value(enum content content, uint64_t of, const void *element)
{
    unsigned char expected[sizeof(hvl_t)];
    make_value(content, of, expected);
    bool same;
    if (content == STRINGS) {
        char *got, *text;
        memcpy(&got, element, sizeof got);
        memcpy(&text, expected, sizeof text);
        /* An unwritten element has no string. */
        same = of ? got && !strcmp(got, text) : !got || !*got;
    } else {
        hvl_t got, sequence;
        memcpy(&got, element, sizeof got);
        memcpy(&sequence, expected, sizeof sequence);
        same = of ? got.len == sequence.len && !memcmp(got.p, sequence.p, got.len * sizeof(int32_t)) : got.len == 0;
        same = same || (of && !got.len && !sequence.len);
    }
    free_value(content, expected);
    return same;
}
