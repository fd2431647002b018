/* Attributes of all objects: the same on all ranks. */
#include "random.h"

static void write_attribute(hid_t id, const struct attribute *attribute)
{
    const hid_t type = attribute->content == PLAIN ? H5(H5Tcopy(attribute->type))
                                                   : memory_type(attribute->type, attribute->content, true);
    const size_t size = H5Tget_size(type);
    unsigned char *memory = calloc(attribute->elements + 1, size);
    REQUIRE(memory);
    uint64_t *values = make_elements(type, attribute->content, memory, attribute->elements);
    LIVE(H5Awrite(id, type, memory));
    free_made(attribute->content, memory, size, values, attribute->elements);
    H5(H5Tclose(type));
}

static hid_t attribute_space(size_t *elements)
{
    const hsize_t dims[] = {within(1, 5), within(1, 3)};
    const uint64_t rank = below(4);
    switch (rank) {
    case 0:
        *elements = 0;
        return H5(H5Screate(H5S_NULL));
    case 1:
        *elements = 1;
        return H5(H5Screate(H5S_SCALAR));
    default:
        *elements = volume((int)rank - 1, dims);
        return H5(H5Screate_simple((int)rank - 1, dims, NULL));
    }
}

static void create_attribute(struct object *object)
{
    if ((size_t)object->attributes == sizeof object->attribute / sizeof *object->attribute) {
        return;
    }
    struct attribute *attribute = &object->attribute[object->attributes];
    snprintf(attribute->name, sizeof attribute->name, "%sa%u", one_in(8) ? "_" : "", names++);
    attribute->type = file_type(&attribute->content);
    const hid_t space = attribute_space(&attribute->elements);
    const hid_t id = open_object(object);
    TELL("create the attribute %s of object %llu", attribute->name, (unsigned long long)object->number);
    hid_t created = -1;
    if (run.live) {
        created = H5(H5Acreate2(id, attribute->name, attribute->type, space, H5P_DEFAULT, H5P_DEFAULT));
    }
    write_attribute(created, attribute);
    if (run.live) {
        H5(H5Aclose(created));
    }
    H5(H5Sclose(space));
    object->attributes++;
}

void change_attributes(void)
{
    struct object *object = one_in(4) ? root : pick_any();
    const uint64_t what = below(8);
    if (what < 4 || !object->attributes) {
        create_attribute(object);
        return;
    }
    const int which = (int)below((uint64_t)object->attributes);
    struct attribute *attribute = &object->attribute[which];
    const hid_t id = open_object(object);
    TELL("%s the attribute %s of object %llu", what == 4 ? "rename" : what == 5 ? "delete" : "write", attribute->name,
         (unsigned long long)object->number);
    switch (what) {
    case 4: {
        char name[16];
        snprintf(name, sizeof name, "r%.12s", attribute->name);
        LIVE(H5Arename(id, attribute->name, name));
        memcpy(attribute->name, name, sizeof name);
        break;
    }
    case 5:
        LIVE(H5Adelete(id, attribute->name));
        *attribute = object->attribute[--object->attributes];
        break;
    default: {
        const hid_t opened = run.live ? H5(H5Aopen(id, attribute->name, H5P_DEFAULT)) : -1;
        write_attribute(opened, attribute);
        if (run.live) {
            H5(H5Aclose(opened));
        }
    }
    }
}
