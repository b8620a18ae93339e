#include "base/sha.h"

#include <gtest/gtest.h>

#include <vector>

namespace voxrt::base {
namespace {

struct Vector {
  size_t size;
  const char* sha256;
  const char* git_blob;
};

// Of the first `size` bytes of (7 i + i / 256) mod 256; made with Python's hashlib.
constexpr Vector kVectors[] = {
    {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"},
    {1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d", "f76dd238ade08917e6712764a16a22005a50573d"},
    {55, "576a1bf8d4478657e6dc4af9398544765c2a92cde28478b019235cfed315fc09",
     "bf2c21e539cb2a6222d1d83e9588852fe3d94b4b"},
    {56, "9b20501dfd1d99161c257950f3444f3e49230c351c5c8e0943ef369f85f5205d",
     "0776ec67df3422dab84854388bee8530c4d8589e"},
    {63, "30b345906b493f06f69444b6521113511c242f30e29840462950035043682f1e",
     "395ce59d9cfb604329205cac947caac9a296bf4d"},
    {64, "d8bc63b4fc1156e5e7d95a418b9bf54cd3174bedbc2db40f74895349b229b3c0",
     "e965d15e332278ccee01cf28e4868f973545c187"},
    {65, "1ee23b0fbcaecc1aff4a9e8f1645f35ab2c8e13609cd73b68df8b5e3f63ce073",
     "60d0cab3fcb67a29198029324b6ede84e3473f6b"},
    {127, "67d79933e3c9aa8e89f481e071cfca1e9a16c09d7263b5efa3bb01f1a9f8d065",
     "0a091fbb997944a51eb86b028499c4dabdad92c8"},
    {128, "54c9eb041badfd7064645067b107661fed6113197ce2dd066ba69618abd3732f",
     "849f6f1a89238fbedb5541bad23ab73a55a9eb12"},
    {1000, "c85a431e0fe575b2609289d3a4042414715f400612575a125d2ce5573d608732",
     "4e48c9fb18acae2463635d59a18ef0b46729cb34"},
};

std::vector<std::byte> Data(size_t size) {
  std::vector<std::byte> data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>((7 * i + i / 256) % 256);
  return data;
}

TEST(ShaTest, EqualsHashlibAtEveryPaddingBorder) {
  for (const Vector& v : kVectors) {
    const std::vector<std::byte> data = Data(v.size);
    EXPECT_EQ(Sha256Hex(data), v.sha256) << v.size;
    GitBlobSha1 sha1(v.size);
    sha1.Update(data);
    EXPECT_EQ(sha1.FinishHex(), v.git_blob) << v.size;
  }
}

TEST(ShaTest, PiecesGiveTheSameHashAsTheWhole) {
  const std::vector<std::byte> data = Data(1000);
  for (const size_t step : {1u, 7u, 63u, 64u, 65u, 200u}) {
    Sha256 sha;
    GitBlobSha1 sha1(1000);
    for (size_t at = 0; at < data.size(); at += step) {
      const auto piece = std::span(data).subspan(at, std::min<size_t>(step, data.size() - at));
      sha.Update(piece);
      sha1.Update(piece);
    }
    EXPECT_EQ(sha.FinishHex(), kVectors[9].sha256) << step;
    EXPECT_EQ(sha1.FinishHex(), kVectors[9].git_blob) << step;
  }
}

}  // namespace
}  // namespace voxrt::base
